//! What the kernel is given for a small plan, as people read it; and rules under other settings.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::net::IpAddr;

use portolan_plan::{Family, LocalDetection, NodePlan, PlanDocument, Settings};
use portolan_reconcile::rules::{ObservedRules, Rules, restore_text};
use portolan_reconcile::{
    Desired, DesiredDocument, HostAddress, HostNetwork, HostRoute, LocalRoute,
};

fn plan() -> NodePlan {
    let document: PlanDocument =
        serde_json::from_str(include_str!("../../tests/plans/node-a.json")).unwrap();
    document.into_plan().unwrap()
}

fn host() -> HostNetwork {
    let address = |text: &str| HostAddress {
        address: text.parse().unwrap(),
        peer: None,
    };
    HostNetwork {
        addresses: vec![address("192.168.50.1"), address("fd00:50::1")],
        routes: vec![],
    }
}

#[test]
fn a_small_plan_becomes_this_kernel_state() {
    let desired = Desired::new(&plan(), &host()).unwrap();
    insta::assert_json_snapshot!(DesiredDocument::from(&desired));
}

#[test]
fn rules_are_what_iptables_is_given() {
    let text = |settings: &Settings, family| {
        restore_text(
            &Rules::new(family, settings, true),
            &ObservedRules::default(),
        )
        .unwrap()
    };
    insta::assert_snapshot!("rules_ipv4", text(&Settings::default(), Family::Ipv4));
    insta::assert_snapshot!("rules_ipv6", text(&Settings::default(), Family::Ipv6));
}

fn prerouting(settings: &Settings) -> String {
    let rules = Rules::new(Family::Ipv4, settings, true);
    rules.tables[2].chains["PREROUTING"][0].clone()
}

#[test]
fn outsiders_are_told_from_pods_as_the_settings_say() {
    let with = |detection| {
        prerouting(&Settings {
            local_detection: detection,
            ..Settings::default()
        })
    };
    let cluster = "-m set --match-set PORTOLAN-CLUSTERIP dst,dst";
    let mark = "-j MARK --set-xmark 0x4000/0x4000";
    assert_eq!(
        with(LocalDetection::NodeCidr),
        format!("{cluster} -m set ! --match-set PORTOLAN-PODS src {mark}")
    );
    assert_eq!(
        with(LocalDetection::BridgeInterface {
            bridge: "cni0".into()
        }),
        format!("! -i cni0 {cluster} {mark}")
    );
    assert_eq!(
        with(LocalDetection::InterfaceNamePrefix {
            prefix: "cali".into()
        }),
        format!("! -i cali+ {cluster} {mark}")
    );
    let mut all = Settings::default();
    all.masquerade.all = true;
    all.masquerade.bit = 3;
    assert_eq!(
        prerouting(&all),
        format!("{cluster} -j MARK --set-xmark 0x8/0x8"),
        "S-72, S-75"
    );
}

#[test]
fn what_is_loaded_is_recognised_and_only_what_differs_is_loaded() {
    let rules = Rules::new(Family::Ipv4, &Settings::default(), true);
    let mut saved = String::new();
    for table in &rules.tables {
        saved.push_str(&format!("*{}\n:INPUT ACCEPT [7:420]\n", table.name));
        for chain in table.chains.keys() {
            saved.push_str(&format!(":PORTOLAN-{chain} - [0:0]\n"));
        }
        saved.push_str("-A INPUT -p tcp -j FOREIGN\n");
        for jump in table.jumps {
            saved.push_str(&format!("-A {} -j PORTOLAN-{}\n", jump.from, jump.to));
        }
        for (chain, lines) in &table.chains {
            for line in lines {
                saved.push_str(&format!("-A PORTOLAN-{chain} {line}\n"));
            }
        }
        saved.push_str("COMMIT\n");
    }
    assert_eq!(restore_text(&rules, &ObservedRules::parse(&saved)), None);
    let doubled = saved.replace(
        "-A INPUT -j PORTOLAN-INPUT\n",
        "-A INPUT -j PORTOLAN-INPUT\n-A INPUT -j PORTOLAN-INPUT\n",
    );
    let text = restore_text(&rules, &ObservedRules::parse(&doubled)).unwrap();
    assert!(
        text.contains("-D INPUT -j PORTOLAN-INPUT\n") && !text.contains("-I "),
        "{text}"
    );
    assert!(
        !text.contains("*nat") && !text.contains("FOREIGN"),
        "{text}"
    );
}

fn routes(host: &HostNetwork) -> Vec<LocalRoute> {
    let routes = Desired::new(&plan(), host).unwrap().routes.into_iter();
    routes
        .filter(|route| route.destination.addr().is_ipv4())
        .collect()
}

#[test]
fn a_service_range_is_routed_whole_only_where_that_takes_nothing_from_the_node() {
    let whole = |host: &HostNetwork| routes(host).len() == 1;
    let route = |destination: &str, gateway: Option<&str>| HostRoute {
        destination: destination.parse().unwrap(),
        gateway: gateway.map(|g| g.parse().unwrap()),
    };
    let with_route = |route| HostNetwork {
        routes: vec![route],
        ..host()
    };
    assert!(whole(&host()));
    // Wider routes, the default route among them, do not count.
    assert!(whole(&with_route(route(
        "0.0.0.0/0",
        Some("192.168.50.254")
    ))));
    assert!(whole(&with_route(route("10.0.0.0/8", None))));
    assert!(
        !whole(&with_route(route("10.96.0.0/12", None))),
        "an equal route"
    );
    assert!(
        !whole(&with_route(route("10.100.3.0/24", None))),
        "a route inside"
    );
    assert!(
        !whole(&with_route(route("0.0.0.0/0", Some("10.96.0.1")))),
        "a next hop inside"
    );
    let mut inside = host();
    inside.addresses.push(HostAddress {
        address: "10.97.1.1".parse().unwrap(),
        peer: None,
    });
    assert!(!whole(&inside), "an address of the node inside");
    let mut peer = host();
    let address = "192.168.60.1".parse().unwrap();
    peer.addresses.push(HostAddress {
        address,
        peer: Some("10.97.1.2".parse().unwrap()),
    });
    assert!(!whole(&peer), "a peer inside");
}

/// S-25: an address that sits on an interface of the node is left there.
#[test]
fn an_address_of_the_node_itself_is_never_routed_away() {
    let mut inside = host();
    let address: IpAddr = "10.96.0.20".parse().unwrap();
    inside.addresses.push(HostAddress {
        address,
        peer: None,
    });
    let routed: Vec<_> = routes(&inside)
        .iter()
        .map(|route| route.destination.addr())
        .collect();
    assert!(
        !routed.contains(&address) && routed.len() == 3,
        "{routed:?}"
    );
}

#[test]
fn a_source_that_the_node_does_not_have_is_left_out() {
    let bare = HostNetwork::default();
    assert!(routes(&bare).iter().all(|route| route.source.is_none()));
    assert_eq!(
        routes(&host())[0].source,
        Some("192.168.50.1".parse().unwrap())
    );
}
