//! Tests which virtual servers are adopted if the ownership record is lost, and which ones stay foreign.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::BTreeSet;

use portolan_plan::{FrontendKind, PlanDocument};
use portolan_reconcile::{
    Desired, HostAddress, HostNetwork, Observed, ObservedSet, Owned, RealServers, SetEntry, SetId,
    VirtualServer,
};

/// The example plan with a load balancer's address, an external IP that is the node's own, and a node port.
fn document() -> PlanDocument {
    let text = include_str!("../../tests/plans/node-a.json");
    let mut document: PlanDocument = serde_json::from_str(text).unwrap();
    let mut services = document.services.iter_mut();
    let web = services.find(|service| &*service.name == "web").unwrap();
    let port = &mut web.ports[0];
    port.external = Some(port.internal.clone());
    for (kind, address, number) in [
        (FrontendKind::LoadBalancer, Some("198.51.100.7"), 80),
        (FrontendKind::ExternalIp, Some("192.168.50.1"), 81),
        (FrontendKind::NodePort, None, 30080),
    ] {
        let mut frontend = port.frontends[0].clone();
        frontend.kind = kind;
        frontend.address = address.map(|text| text.parse().unwrap());
        frontend.port = number;
        port.frontends.push(frontend);
    }
    document
}

fn adopted(document: PlanDocument, found: &[&str], set: Option<(&str, &str)>) -> Vec<String> {
    let on = |text: &str| HostAddress::on("eth0", text.parse().unwrap());
    let addresses = ["192.168.50.1/24", "192.168.51.1/24"].map(on).into();
    let mut observed = Observed {
        host: HostNetwork {
            addresses,
            ..HostNetwork::default()
        },
        ..Observed::default()
    };
    for server in found {
        let held = VirtualServer {
            scheduler: "wlc".into(),
            flags: 0,
            timeout: 0,
            real_servers: RealServers::new(),
        };
        observed
            .virtual_servers
            .insert(server.parse().unwrap(), held);
    }
    if let Some((name, server)) = set {
        let id: SetId = name.parse().unwrap_or_else(|_| panic!("{name}"));
        let entries = BTreeSet::from([SetEntry::of(server.parse().unwrap())]);
        let held = ObservedSet {
            entries,
            ..ObservedSet::default()
        };
        observed.sets.insert(id, held);
    }
    let desired = Desired::new(&document.into_plan().unwrap(), &observed.host).unwrap();
    let owned = Owned::adopt(&observed, &desired);
    owned.recorded.iter().map(ToString::to_string).collect()
}

/// S-109: adopts virtual servers wherever only Portolan creates them, and no others.
#[test]
fn without_a_record_servers_on_service_ranges_addresses_and_node_ports_are_adopted() {
    let found = [
        // In the service range; on a load balancer's address, with any port; node ports.
        "TCP 10.96.200.1:80",
        "TCP 198.51.100.7:8443",
        "TCP 192.168.50.1:30080",
        "TCP 192.168.51.1:30080",
        // keepalived on its own address and on the node's; another protocol; another port.
        "TCP 203.0.113.9:80",
        "TCP 192.168.50.1:443",
        "TCP 192.168.50.1:81",
        "UDP 192.168.50.1:30080",
        "TCP 192.168.50.1:30081",
        "TCP 192.168.60.1:30080",
    ];
    assert_eq!(
        adopted(document(), &found, None),
        [
            "TCP 10.96.200.1:80",
            "TCP 192.168.50.1:30080",
            "TCP 192.168.51.1:30080",
            "TCP 198.51.100.7:8443",
        ]
    );
}

/// S-109: Portolan's sets outlive the record, and the virtual servers that they let through are owned.
#[test]
fn servers_that_our_sets_let_through_are_adopted_without_a_record() {
    let found = ["TCP 203.0.113.9:80", "TCP 203.0.113.9:81"];
    let owned = adopted(document(), &found, Some(("PORTOLAN-FRONTEND", found[1])));
    assert_eq!(owned, ["TCP 203.0.113.9:81"]);
    let other = adopted(document(), &found, Some(("PORTOLAN-HOLD", found[1])));
    assert_eq!(other, [""; 0]);
}

/// S-108: virtual servers in excluded ranges belong to other programs.
#[test]
fn excluded_ranges_are_not_adopted() {
    let found = ["TCP 10.96.200.1:80", "TCP 198.51.100.7:80"];
    let mut document = document();
    document.settings.exclude_cidrs = vec!["198.51.100.0/24".parse().unwrap()];
    assert_eq!(
        adopted(document, &found, Some(("PORTOLAN-FRONTEND", found[1]))),
        ["TCP 10.96.200.1:80"]
    );
}
