//! S-247: at which addresses of load balancers connections from outside to unused ports are rejected, in both dataplanes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::BTreeSet;

use ipnet::IpNet;
use portolan_plan::{Family, PlanDocument};
use portolan_reconcile::nftables::Tables;
use portolan_reconcile::{
    Desired, Facts, HostAddress, HostNetwork, HostRoute, SetEntry, SetId, SetRole,
};

/// A node whose default route leads out.
fn host(addresses: &[&str], routes: &[&str]) -> HostNetwork {
    let on = |text: &&str| HostAddress::on("eth0", text.parse().unwrap());
    let route = |text: &&str| HostRoute {
        destination: text.parse().unwrap(),
        gateway: None,
    };
    let usual = ["0.0.0.0/0", "::/0", "192.168.50.0/24"];
    HostNetwork {
        addresses: ["192.168.50.1/24"]
            .iter()
            .chain(addresses)
            .map(on)
            .collect(),
        routes: usual.iter().chain(routes).map(route).collect(),
        ..HostNetwork::default()
    }
}

/// The addresses at which a node with these rejects, if a Service has a load balancer's address of each family, one inside
/// of the service range, and an external IP.
fn rejecting(addresses: &[&str], routes: &[&str]) -> Vec<String> {
    let mut document: PlanDocument =
        serde_json::from_str(include_str!("../../tests/plans/node-a.json")).unwrap();
    let services = document.services.iter_mut();
    let mut ports = services.flat_map(|service| &mut service.ports);
    let port = ports.next().unwrap();
    port.frontends = serde_json::from_str(
        r#"[{"kind": "LoadBalancer", "address": "203.0.113.9", "port": 80},
            {"kind": "LoadBalancer", "address": "2001:db8::9", "port": 80},
            {"kind": "LoadBalancer", "address": "10.96.77.9", "port": 80},
            {"kind": "ExternalIP", "address": "198.51.100.9", "port": 80}]"#,
    )
    .unwrap();
    port.external = Some(port.internal.clone());
    let (plan, host) = (document.into_plan().unwrap(), host(addresses, routes));
    let desired = Desired::new(&plan, &host).unwrap();
    let of_ipvs = Family::BOTH.into_iter().flat_map(|family| {
        let role = SetRole::Balancers;
        desired.sets[&SetId { role, family }].entries.iter()
    });
    let of_ipvs: BTreeSet<IpNet> = of_ipvs
        .map(|entry| match entry {
            SetEntry::Net(net) => *net,
            other => panic!("{other}"),
        })
        .collect();
    let tables = Tables::of(&Facts::new(&plan, &host).unwrap());
    let of_nftables = tables.families.values();
    let of_nftables: BTreeSet<IpNet> = of_nftables
        .flat_map(|table| table.balancers.iter().copied())
        .collect();
    assert_eq!(of_ipvs, of_nftables);
    of_ipvs.iter().map(|net| net.addr().to_string()).collect()
}

#[test]
fn unused_ports_are_rejected_where_no_route_leads_elsewhere() {
    let both = ["203.0.113.9", "2001:db8::9"];
    assert_eq!(rejecting(&[], &[]), both);
    assert_eq!(rejecting(&[], &["203.0.114.0/24"]), both);
    for (addresses, routes, left) in [
        (&[][..], &["203.0.113.0/24"][..], "2001:db8::9"),
        (&[], &["203.0.113.9/32"], "2001:db8::9"),
        (&[], &["2001:db8::/64"], "203.0.113.9"),
        (&["203.0.113.9/32"], &[], "2001:db8::9"),
    ] {
        let found = rejecting(addresses, routes);
        assert_eq!(found, [left], "{addresses:?} {routes:?}");
    }
}
