//! Tests the desired kernel state of a small plan as a document, and rules under other settings.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::BTreeSet;
use std::net::IpAddr;

use portolan_plan::{Family, LocalDetection, NodePlan, PlanDocument, Settings};
use portolan_reconcile::rules::{ObservedRules, Rules, TABLES, restore_text};
use portolan_reconcile::{
    Desired, DesiredDocument, HostAddress, HostNetwork, HostRoute, Ipv6Off, Observed, Op, Owned,
    PolicyRule, Route, RulesOp, SetEntry, SetId, SetRole, diff,
};

fn plan() -> NodePlan {
    let document: PlanDocument =
        serde_json::from_str(include_str!("../../tests/plans/node-a.json")).unwrap();
    document.into_plan().unwrap()
}

fn host() -> HostNetwork {
    let address = |text: &str| HostAddress::on("eth0", text.parse().unwrap());
    HostNetwork {
        addresses: vec![address("192.168.50.1/24"), address("fd00:50::1/64")],
        ..HostNetwork::default()
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

/// S-7: a kernel without IPv6 need not load rules that would have no effect.
#[test]
fn a_family_that_neither_plan_nor_node_uses_needs_no_rules() {
    let families = |plan: &NodePlan, host: &HostNetwork| -> Vec<_> {
        let desired = Desired::new(plan, host).unwrap();
        desired.rules.iter().map(|rules| rules.family).collect()
    };
    let mut lonely = host();
    lonely.addresses.retain(|held| held.address.is_ipv4());
    assert_eq!(
        families(&plan(), &lonely),
        Family::BOTH,
        "the plan uses both families"
    );
    let mut document: PlanDocument =
        serde_json::from_str(include_str!("../../tests/plans/node-a.json")).unwrap();
    document.services.clear();
    document
        .service_cidrs
        .retain(|range| range.addr().is_ipv4());
    let plan = document.into_plan().unwrap();
    assert_eq!(families(&plan, &lonely), [Family::Ipv4]);
    // Addresses that every kernel with IPv6 has by default.
    let by_itself =
        ["::1/128", "fe80::1/64"].map(|text| HostAddress::on("eth0", text.parse().unwrap()));
    lonely.addresses.extend(by_itself);
    let desired = Desired::new(&plan, &lonely).unwrap();
    assert_eq!(desired.idle, [Family::Ipv6].into());
    let loaded = |observed: &Observed| -> Vec<_> {
        let phases = diff(observed, &desired, &Owned::default()).into_iter();
        let ops = phases.flat_map(|(_, ops)| ops);
        ops.filter_map(|op| match op {
            Op::Rules(RulesOp { family, .. }) => Some(family),
            _ => None,
        })
        .collect()
    };
    let mut observed = Observed::default();
    assert_eq!(
        loaded(&observed),
        [Family::Ipv4],
        "there are no IPv6 rules, and none are needed"
    );
    let other = Settings {
        drop_invalid: false,
        ..Settings::default()
    };
    let others = Rules::new(Family::Ipv6, &other, true).expected();
    observed.rules.insert(Family::Ipv6, others);
    assert_eq!(
        loaded(&observed),
        Family::BOTH,
        "existing rules are corrected"
    );
    assert_eq!(Desired::new(&plan, &host()).unwrap().idle, [].into());
    assert_eq!(
        families(&plan, &host()),
        Family::BOTH,
        "the node uses both families"
    );
}

/// S-182.
#[test]
fn a_node_without_ipv6_gets_only_the_ipv4_state() {
    let plan = plan();
    let both = Desired::new(&plan, &host()).unwrap();
    let mut off = host();
    off.machine.ipv6_off = Some(Ipv6Off::NotInKernel);
    let one = Desired::new(&plan, &off).unwrap();
    let mut wanted = both.clone();
    wanted
        .virtual_servers
        .retain(|key, _| key.address.is_ipv4());
    wanted.resting.retain(|key| key.address.is_ipv4());
    wanted.boot_critical.retain(|key| key.address.is_ipv4());
    wanted.deadlines.of.retain(|key, _| key.address.is_ipv4());
    wanted.routes.retain(|route| route.family() == Family::Ipv4);
    wanted.policy.retain(|rule| rule.family == Family::Ipv4);
    wanted.rules.retain(|rules| rules.family == Family::Ipv4);
    wanted.common = one.common.clone();
    for (id, set) in &mut wanted.sets {
        // Health check ports have no family, and pod ranges do not depend on the node's families.
        if id.family == Family::Ipv6 && !matches!(id.role, SetRole::Health | SetRole::Pods) {
            set.entries.clear();
        }
    }
    wanted.lacks_ipv6 = Some(Ipv6Off::NotInKernel);
    assert!(wanted.virtual_servers.len() < both.virtual_servers.len());
    assert!(wanted.routes.len() < both.routes.len());
    assert_eq!(one, wanted);
    assert_eq!(both.lacks_ipv6, None);
}

/// S-182: nothing is reported if the plan gives the node no IPv6.
#[test]
fn a_node_without_ipv6_in_its_plan_lacks_nothing() {
    let mut document: PlanDocument =
        serde_json::from_str(include_str!("../../tests/plans/node-a.json")).unwrap();
    let mut off = host();
    off.machine.ipv6_off = Some(Ipv6Off::Disabled);
    let lacks = |document: &PlanDocument| {
        let plan = document.clone().into_plan().unwrap();
        Desired::new(&plan, &off).unwrap().lacks_ipv6
    };
    assert_eq!(lacks(&document), Some(Ipv6Off::Disabled));
    let mut of_ipv4 = document.clone();
    for port in of_ipv4.services.iter_mut().flat_map(|s| &mut s.ports) {
        let frontends = &mut port.frontends;
        frontends.retain(|frontend| frontend.address.is_none_or(|address| address.is_ipv4()));
    }
    let serves =
        |ports: &[portolan_plan::PortDocument]| ports.iter().all(|port| !port.frontends.is_empty());
    of_ipv4.services.retain(|service| serves(&service.ports));
    assert_eq!(lacks(&of_ipv4), None, "no Service is left out");
    document.pod_cidrs.retain(|range| range.addr().is_ipv4());
    assert_eq!(
        lacks(&document),
        Some(Ipv6Off::Disabled),
        "its addresses say so"
    );
    document.node_addresses.retain(IpAddr::is_ipv4);
    assert_eq!(lacks(&document), None);
}

/// The code that reads rules reads exactly these tables.
#[test]
fn tables_lists_the_tables_of_the_rules() {
    for family in Family::BOTH {
        let rules = Rules::new(family, &Settings::default(), true);
        let names: Vec<_> = rules.tables.iter().map(|table| table.name).collect();
        assert_eq!(names, TABLES);
    }
}

/// The rule that masquerades packets to cluster IPs.
fn to_cluster_ips(settings: &Settings) -> String {
    let rules = Rules::new(Family::Ipv4, settings, true);
    let mangle = rules.tables.iter().find(|table| table.name == "mangle");
    let input = &mangle.unwrap().chains["INPUT"];
    let is_theirs = |rule: &&String| rule.contains("PORTOLAN-CLUSTERIP");
    input.iter().find(is_theirs).unwrap().clone()
}

#[test]
fn external_clients_are_recognised_by_the_configured_local_detection() {
    let with = |detection| {
        to_cluster_ips(&Settings {
            local_detection: detection,
            ..Settings::default()
        })
    };
    let cluster = "-m set --match-set PORTOLAN-CLUSTERIP dst,dst";
    let first = "-m conntrack ! --ctstatus CONFIRMED -j MARK --set-xmark";
    let mark = format!("{first} 0x4000/0x4000");
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
        to_cluster_ips(&all),
        format!("{cluster} {first} 0x8/0x8"),
        "S-72, S-75"
    );
}

#[test]
fn loaded_rules_are_recognised_and_only_differences_are_loaded() {
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

/// The IPv4 routes over Portolan's device, and the number of ranges whose unused addresses are rejected.
fn ranges(host: &HostNetwork) -> (Vec<Route>, usize) {
    let desired = Desired::new(&plan(), host).unwrap();
    let (role, family) = (SetRole::Ranges, Family::Ipv4);
    let refused = desired.sets[&SetId { role, family }].entries.len();
    let is_range = |route: &Route| matches!(route, Route::Range { to, .. } if to.addr().is_ipv4());
    (
        desired.routes.into_iter().filter(is_range).collect(),
        refused,
    )
}

#[test]
fn routes_to_ipvs_are_the_same_for_one_service_and_for_all() {
    let all = Desired::new(&plan(), &host()).unwrap();
    let mut document: PlanDocument =
        serde_json::from_str(include_str!("../../tests/plans/node-a.json")).unwrap();
    document.services.truncate(1);
    let one = Desired::new(&document.into_plan().unwrap(), &host()).unwrap();
    assert_eq!((&one.routes, &one.policy), (&all.routes, &all.policy));
    let settings = Settings::default();
    let wanted = Family::BOTH.map(|family| PolicyRule::of(family, &settings));
    assert_eq!(all.policy, wanted.concat().into_iter().collect());
}

/// S-224: connections to every frontend without a backend are rejected, and those to other frontends are not.
#[test]
fn frontends_without_a_backend_are_rejected_and_others_are_not() {
    let mut document: PlanDocument =
        serde_json::from_str(include_str!("../../tests/plans/node-a.json")).unwrap();
    let ports = document.services.iter_mut().flat_map(|s| &mut s.ports);
    for port in ports {
        port.internal.endpoints.clear();
    }
    let desired = Desired::new(&document.into_plan().unwrap(), &host()).unwrap();
    let entries = |role| -> Vec<SetEntry> {
        let both = Family::BOTH.into_iter();
        both.flat_map(|family| &desired.sets[&SetId { role, family }].entries)
            .copied()
            .collect()
    };
    let (refused, served) = (entries(SetRole::Refuse), entries(SetRole::Frontend));
    assert!(
        refused.len() >= 2,
        "cluster IPs of both families: {refused:?}"
    );
    assert!(refused.iter().all(|entry| !served.contains(entry)));
    let places = desired.virtual_servers.keys().map(|key| SetEntry::of(*key));
    assert_eq!(served, places.collect::<Vec<_>>());
}

/// S-74, S-246: a backend in the node's pod ranges is a pod of the node, although its endpoint names no node. It
/// changes the set for connections of a pod to itself, and no other.
#[test]
fn a_pod_reaches_itself_although_its_endpoint_names_no_node() {
    let of = |named: bool, here: bool| {
        let mut document: PlanDocument =
            serde_json::from_str(include_str!("../../tests/plans/node-a.json")).unwrap();
        if !named {
            document.local_endpoints.clear();
        }
        if !here {
            document.pod_cidrs = vec!["10.99.0.0/24".parse().unwrap()];
        }
        Desired::new(&document.into_plan().unwrap(), &host()).unwrap()
    };
    let hairpin = |desired: &Desired| -> BTreeSet<SetEntry> {
        let role = SetRole::Hairpin;
        let both = Family::BOTH.into_iter();
        both.flat_map(|family| desired.sets[&SetId { role, family }].entries.clone())
            .collect()
    };
    let (named, unnamed) = (of(true, true), of(false, true));
    assert_eq!(hairpin(&unnamed), hairpin(&named));
    assert_eq!(hairpin(&unnamed).len(), 4);
    assert!(
        hairpin(&of(false, false)).is_empty(),
        "pods of other nodes do not count"
    );
    let others = |desired: &Desired| {
        let sets = desired.sets.clone().into_iter();
        let sets: Vec<_> = sets.filter(|(id, _)| id.role != SetRole::Hairpin).collect();
        (sets, desired.virtual_servers.clone())
    };
    assert_eq!(others(&named), others(&unnamed));
}

#[test]
fn unused_addresses_of_a_service_range_are_rejected_only_if_that_takes_nothing_from_the_node() {
    let whole = |host: &HostNetwork| match ranges(host) {
        (routes, 1) => routes.len() == 1,
        (routes, refused) => routes.len() + refused > 0,
    };
    let route = |destination: &str, gateway: Option<&str>| HostRoute {
        destination: destination.parse().unwrap(),
        gateway: gateway.map(|g| g.parse().unwrap()),
    };
    let with_route = |route| HostNetwork {
        routes: vec![route],
        ..host()
    };
    assert!(whole(&host()));
    // Wider routes, including the default route, do not matter.
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
    let address = HostAddress::on("eth1", "10.97.1.1/32".parse().unwrap());
    inside.addresses.push(address);
    assert!(!whole(&inside), "an address of the node inside");
    let mut peer = host();
    peer.addresses.push(HostAddress {
        peer: Some("10.97.1.2".parse().unwrap()),
        ..HostAddress::on("tun0", "192.168.60.1/32".parse().unwrap())
    });
    assert!(!whole(&peer), "a peer inside");
}

/// S-87: a range of everything opens its family, even with narrow ranges beside it.
#[test]
fn a_range_of_everything_is_no_guard_and_a_narrow_one_is() {
    let entries = |ranges: &[&str]| {
        let mut document: PlanDocument =
            serde_json::from_str(include_str!("../../tests/plans/node-a.json")).unwrap();
        let services = document.services.iter_mut();
        let port = services
            .flat_map(|service| &mut service.ports)
            .next()
            .unwrap();
        port.frontends = serde_json::from_str(
            r#"[{"kind": "LoadBalancer", "address": "203.0.113.9", "port": 80},
                {"kind": "LoadBalancer", "address": "2001:db8::9", "port": 80}]"#,
        )
        .unwrap();
        port.external = Some(port.internal.clone());
        port.source_ranges = ranges.iter().map(|range| range.parse().unwrap()).collect();
        let desired = Desired::new(&document.into_plan().unwrap(), &host()).unwrap();
        [SetRole::Guarded, SetRole::Allow].map(|role| {
            Family::BOTH.map(|family| {
                let set = &desired.sets[&SetId { role, family }];
                let shown: Vec<_> = set.entries.iter().map(ToString::to_string).collect();
                shown.join(" ")
            })
        })
    };
    let (four, six) = ("203.0.113.9,tcp:80", "2001:db8::9,tcp:80");
    let (allow4, allow6) = (
        format!("{four},198.51.100.0/24"),
        format!("{six},2001:db8:1::/48"),
    );
    let narrow = ["198.51.100.0/24", "2001:db8:1::/48"];
    assert_eq!(entries(&narrow), [[four, six], [&allow4, &allow6]]);
    let open4 = ["0.0.0.0/0", "198.51.100.0/24", "2001:db8:1::/48"];
    assert_eq!(entries(&open4), [["", six], ["", &allow6]]);
    let open6 = ["198.51.100.0/24", "::/0"];
    assert_eq!(entries(&open6), [[four, ""], [&allow4, ""]]);
    assert_eq!(entries(&["0.0.0.0/0", "::/0"]), [["", ""], ["", ""]]);
}

/// S-90, S-223: a node that has the address itself connects from that address, if any of its addresses may.
#[test]
fn a_node_that_has_a_guarded_address_may_connect_if_another_address_of_it_may() {
    let allowed = |own: &[&str], range: &str| {
        let mut document: PlanDocument =
            serde_json::from_str(include_str!("../../tests/plans/node-a.json")).unwrap();
        let port = &mut document.services[0].ports[0];
        port.frontends = serde_json::from_str(
            r#"[{"kind": "LoadBalancer", "address": "203.0.113.9", "port": 80}]"#,
        )
        .unwrap();
        port.external = Some(port.internal.clone());
        port.source_ranges = vec![range.parse().unwrap()];
        let mut host = host();
        let on = |text: &&str| HostAddress::on("eth0", text.parse().unwrap());
        host.addresses.extend(own.iter().map(on));
        let desired = Desired::new(&document.into_plan().unwrap(), &host).unwrap();
        let (role, family) = (SetRole::Allow, Family::Ipv4);
        desired.sets[&SetId { role, family }].entries.len()
    };
    let vip = ["203.0.113.9/32"];
    assert_eq!(allowed(&vip, "192.168.50.0/24"), 2);
    assert_eq!(
        allowed(&vip, "198.51.100.0/24"),
        1,
        "no address of the node is allowed"
    );
    assert_eq!(
        allowed(&[], "192.168.50.0/24"),
        1,
        "the address is not the node's"
    );
}

/// S-86: if a load balancer's address is also the cluster IP, source ranges apply only to external clients.
#[test]
fn a_guarded_cluster_ip_lets_the_node_and_its_pods_in() {
    let admitted = |address: &str| {
        let mut document: PlanDocument =
            serde_json::from_str(include_str!("../../tests/plans/node-a.json")).unwrap();
        let port = &mut document.services[0].ports[0];
        let frontend =
            format!(r#"[{{"kind": "LoadBalancer", "address": "{address}", "port": 80}}]"#);
        port.frontends = serde_json::from_str(&frontend).unwrap();
        port.external = Some(port.internal.clone());
        port.source_ranges = vec!["198.51.100.0/24".parse().unwrap()];
        let desired = Desired::new(&document.into_plan().unwrap(), &host()).unwrap();
        let (role, family) = (SetRole::Allow, Family::Ipv4);
        let entries = desired.sets[&SetId { role, family }].entries.iter();
        let net = entries.map(|entry| match entry {
            SetEntry::AddressPortNet { net, .. } => net.to_string(),
            other => panic!("{other:?}"),
        });
        net.collect::<BTreeSet<_>>()
    };
    let outside = admitted("203.0.113.9");
    assert_eq!(outside, ["198.51.100.0/24".to_owned()].into());
    let inside = admitted("10.96.0.10");
    for range in ["198.51.100.0/24", "192.168.50.1/32", "10.244.1.0/24"] {
        assert!(inside.contains(range), "{range}: {inside:?}");
    }
}

/// S-166: other rules that translate addresses of the node come after Portolan's, except Calico's. S-243: those that
/// restore marks in `mangle` come before it.
#[test]
fn jumps_are_moved_to_their_places() {
    let rules = Rules::new(Family::Ipv4, &Settings::default(), true);
    let saved = |before: &str, after: &str| {
        let mut saved = String::new();
        for table in &rules.tables {
            saved.push_str(&format!("*{}\n", table.name));
            for chain in table.chains.keys() {
                saved.push_str(&format!(":PORTOLAN-{chain} - [0:0]\n"));
            }
            for chain in ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING", "FORWARD"] {
                if !before.is_empty() {
                    saved.push_str(&format!("-A {chain} {before}\n"));
                }
                let jumps = table.jumps.iter().filter(|jump| jump.from == chain);
                for jump in jumps {
                    saved.push_str(&format!("-A {} -j PORTOLAN-{}\n", jump.from, jump.to));
                }
                if !after.is_empty() {
                    saved.push_str(&format!("-A {chain} {after}\n"));
                }
            }
            for (chain, lines) in &table.chains {
                for line in lines {
                    saved.push_str(&format!("-A PORTOLAN-{chain} {line}\n"));
                }
            }
            saved.push_str("COMMIT\n");
        }
        ObservedRules::parse(&saved)
    };
    let behind = saved("-m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT", "");
    let text = restore_text(&rules, &behind).unwrap();
    for chain in ["PREROUTING", "OUTPUT"] {
        let moved = format!("-I {chain} 1 -j PORTOLAN-{chain}\n");
        assert!(text.contains(&moved), "{text}");
        assert!(
            text.contains(&format!("-D {chain} -j PORTOLAN-{chain}\n")),
            "{text}"
        );
    }
    assert!(
        !text.contains("*filter") && !text.contains("-D POSTROUTING"),
        "{text}"
    );
    assert_eq!(behind.differences(&rules.expected()).len(), 2);
    assert_eq!(restore_text(&rules, &saved("-j cali-PREROUTING", "")), None);
    let before = saved("", "-j CONNMARK --restore-mark");
    let text = restore_text(&rules, &before).unwrap();
    assert!(
        text.starts_with("*mangle\n") && text.matches("COMMIT").count() == 1,
        "{text}"
    );
    assert!(
        !text.contains("-I ") && !text.contains("-D FORWARD"),
        "{text}"
    );
    let moved = ["-D", "-A"].map(|act| format!("{act} PREROUTING -j PORTOLAN-PREROUTING\n"));
    assert!(moved.iter().all(|line| text.contains(line)), "{text}");
    assert_eq!(before.differences(&rules.expected()).len(), 1);
    assert_eq!(restore_text(&rules, &saved("", "-j cali-PREROUTING")), None);
}
