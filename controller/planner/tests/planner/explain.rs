//! Explanations match the plans: laws over random histories, and texts of single cases.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::build::Cluster;
use crate::histories::history;
use portolan_plan::{
    ExternalClients, Family, HeadPort, ListKey, NodeEntry, Policy, Scope, ScopeKind, ServiceId,
};
use portolan_planner::explain::{
    Explanation, Group, GroupExplanation, In, ListReason, Reach, Unknown, Verdict,
};
use portolan_planner::{HintKind, HintOutcome, PlannedService, Planner};
use proptest::prelude::*;

type Reached = (IpAddr, u16);

/// The backends of a node in the plan.
fn backends(
    planned: &PlannedService,
    port: &HeadPort,
    group: &GroupExplanation,
    node: &NodeEntry,
) -> BTreeSet<Reached> {
    let list = group.group.of(port).expect("a list, since it is explained");
    let key = ListKey {
        service: planned.id.clone(),
        port: port.name.clone(),
        family: group.family,
        scope: node.complete(list.choice(group.family).scope),
    };
    let list = planned.lists_for(node).find(|(own, _)| **own == key);
    let backends = list.into_iter().flat_map(|(_, list)| list.as_slice());
    backends.map(|b| (b.address, b.port)).collect()
}

/// All endpoints of a port and family in slices of the Service, with duplicates.
fn merged(planner: &Planner, id: &ServiceId, port: &HeadPort, family: Family) -> BTreeSet<Reached> {
    let slices = planner.model().slices_of(id);
    let copies = slices.flat_map(|slice| {
        let same = slice
            .ports
            .iter()
            .filter(|own| own.name == port.name && own.protocol == port.protocol);
        same.flat_map(move |own| slice.endpoints.iter().map(move |e| (e.address, own.port)))
    });
    copies
        .filter(|(address, _)| Family::of(*address) == family)
        .collect()
}

/// All groups of all ports of all Services on all nodes, with their lists in the plan.
fn each_group(
    planner: &Planner,
    mut check: impl FnMut(
        &PlannedService,
        &HeadPort,
        &GroupExplanation,
        &NodeEntry,
    ) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    for node in planner.nodes().values() {
        for (id, planned) in planner.services() {
            let explanation = planner.explain(&node.name, id).expect("both are there");
            let served = explanation.outcome.expect("it is planned");
            let head = planned.head_for(node);
            prop_assert_eq!(served.ports.len(), head.ports.len());
            for (port, explained_port) in head.ports.iter().zip(&served.ports) {
                prop_assert_eq!(&port.frontends.to_vec(), &explained_port.frontends);
                for group in &explained_port.groups {
                    check(planned, port, group, node)?;
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn explained_endpoints_match_the_list_and_each_is_named_once(history in history()) {
        let mut planner = Planner::default();
        planner.apply(history);
        each_group(&planner, |planned, port, group, node| {
            let used: BTreeSet<_> = group.used().map(|e| (e.address, e.port)).collect();
            prop_assert_eq!(used, backends(planned, port, group, node), "{} on {}", planned.id, node.name);
            let named: Vec<_> = group.endpoints.iter().map(|e| (e.address, e.port)).collect();
            let all = merged(&planner, &planned.id, port, group.family);
            prop_assert_eq!(named, all.into_iter().collect::<Vec<_>>());
            Ok(())
        })?;
    }

    /// Exactly the groups and families with a frontend in the head are explained.
    #[test]
    fn every_frontend_has_a_list_that_is_explained(history in history()) {
        let mut planner = Planner::default();
        planner.apply(history);
        let mut explained = Vec::new();
        each_group(&planner, |planned, port, group, node| {
            let answers = port.frontends.iter().any(|frontend| {
                let internal = frontend.kind == portolan_plan::FrontendKind::ClusterIp;
                (group.group == Group::Internal) == internal
                    && frontend.address.is_none_or(|a| Family::of(a) == group.family)
            });
            prop_assert!(answers && port.has_family(group.family));
            explained.push((node.name.clone(), planned.id.clone(), port.name.clone(), group.group, group.family));
            Ok(())
        })?;
        for node in planner.nodes().values() {
            for planned in planner.services().values() {
                for port in &planned.head_for(node).ports {
                    for frontend in &port.frontends {
                        let internal = frontend.kind == portolan_plan::FrontendKind::ClusterIp;
                        let of_kind = if internal { Group::Internal } else { Group::External };
                        let of = |f: &Family| frontend.address.is_none_or(|a| Family::of(a) == *f);
                        for family in Family::BOTH.into_iter().filter(of).filter(|f| port.has_family(*f)) {
                            let wanted = (node.name.clone(), planned.id.clone(), port.name.clone(), of_kind, family);
                            prop_assert!(explained.contains(&wanted), "{:?}", wanted);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_other_node_is_counted_once_with_the_endpoints_it_has(history in history()) {
        let mut planner = Planner::default();
        planner.apply(history);
        each_group(&planner, |planned, port, group, here| {
            let mut named: Vec<_> = group.elsewhere.iter().flat_map(|e| &e.nodes).collect();
            named.sort();
            let others: Vec<_> = planner.nodes().keys().filter(|name| **name != here.name).collect();
            prop_assert_eq!(named, others);
            for alike in &group.elsewhere {
                let mut counts = Vec::new();
                for name in &alike.nodes {
                    let node = planner.node(name).expect("a node of the model");
                    let head = planned.head_for(node);
                    let own = head.ports.iter().find(|own| own.name == port.name).expect("the same ports");
                    let Some(list) = group.group.of(own) else { counts.push(0); continue };
                    prop_assert_eq!(list.choice(group.family).external_clients, alike.external_clients);
                    counts.push(backends(planned, own, group, node).len());
                }
                prop_assert_eq!(counts.iter().min(), Some(&alike.fewest));
                prop_assert_eq!(counts.iter().max(), Some(&alike.most));
            }
            Ok(())
        })?;
    }

    /// S-21, S-22, S-67: an empty list rejects all clients; pods and the node are never dropped.
    #[test]
    fn clients_are_served_refused_or_dropped_as_the_plan_says(history in history()) {
        let mut planner = Planner::default();
        planner.apply(history);
        each_group(&planner, |planned, port, group, node| {
            let is_empty = backends(planned, port, group, node).is_empty();
            let choice = group.group.of(port).expect("it is explained").choice(group.family);
            prop_assert!(choice.scope != ScopeKind::Local || choice.external_clients == ExternalClients::Allow);
            for treatment in &group.clients {
                let dropped = choice.external_clients == ExternalClients::Drop;
                let reach = treatment.reach;
                match reach {
                    Reach::Refused => prop_assert!(is_empty),
                    Reach::Dropped => prop_assert!(!is_empty && dropped),
                    Reach::Served => prop_assert!(!is_empty),
                }
                prop_assert_eq!(reach == Reach::Served, treatment.source.is_some());
            }
            Ok(())
        })?;
    }

    /// S-57 to S-61: hints are explained as effective exactly if the node's list comes from them, and then every
    /// endpoint in it has a hint for the node or its zone.
    #[test]
    fn explained_hints_match_the_list(history in history()) {
        let mut planner = Planner::default();
        planner.apply(history);
        each_group(&planner, |_, _, group, node| {
            let by_hints = match &group.scope {
                Scope::Zone(zone) => Some((HintKind::Zone, zone)),
                Scope::Node(name) => Some((HintKind::Node, name)),
                Scope::Cluster | Scope::Local(_) => None,
            };
            let used = match &group.hints {
                Some(HintOutcome::Used(kind)) => Some(*kind),
                Some(HintOutcome::Ignored(_)) | None => None,
            };
            prop_assert_eq!(used, by_hints.map(|(kind, _)| kind), "{} on {}", group.scope, node.name);
            for endpoint in group.used() {
                let hinted = match &endpoint.verdict {
                    Verdict::In(In::Hinted { kind, name }) => Some((*kind, name)),
                    _ => None,
                };
                prop_assert_eq!(hinted, by_hints);
            }
            Ok(())
        })?;
    }

    /// S-22, S-43, S-49.
    #[test]
    fn the_explained_policy_matches_the_list(history in history()) {
        let mut planner = Planner::default();
        planner.apply(history);
        each_group(&planner, |planned, port, group, node| {
            let list = group.group.of(port).expect("it is explained");
            let choice = list.choice(group.family);
            let expected = match (list.policy, choice.scope, choice.external_clients) {
                (Policy::Cluster, ..) => ListReason::Cluster,
                (Policy::Local, ScopeKind::Local, _) => ListReason::Local,
                (Policy::Local, _, ExternalClients::Drop) => ListReason::LocalButNoneHere,
                (Policy::Local, _, ExternalClients::Allow) => ListReason::LocalButNoneAnywhere,
            };
            prop_assert_eq!(group.because, expected);
            let own = group.endpoints.iter().filter(|e| e.node.as_ref() == Some(&node.name));
            let used: Vec<_> = group.used().collect();
            match group.because {
                ListReason::Cluster => {}
                ListReason::Local => prop_assert!(used.iter().all(|e| e.node.as_ref() == Some(&node.name))),
                ListReason::LocalButNoneHere => {
                    prop_assert!(!used.is_empty());
                    // An endpoint on this node may only be used if all clients may use it.
                    let here = planned.lists.keys().any(|key| {
                        key.scope == Scope::Local(node.name.clone()) && key.family == group.family && *key.port == *port.name
                    });
                    prop_assert!(!here, "{:?}", own.collect::<Vec<_>>());
                }
                ListReason::LocalButNoneAnywhere => prop_assert!(used.is_empty()),
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_service_has_an_explanation_or_a_reason_why_it_is_not_proxied(history in history()) {
        let mut planner = Planner::default();
        planner.apply(history);
        let nowhere = planner.explain("nowhere", &ServiceId::new("ns", "a"));
        prop_assert_eq!(nowhere, Err(Unknown::Node));
        for node in planner.nodes().keys() {
            let unknown = planner.explain(node, &ServiceId::new("ns", "unknown"));
            prop_assert_eq!(unknown, Err(Unknown::Service));
            for service in planner.model().services() {
                let explanation: Explanation = planner.explain(node, &service.id).expect("both are there");
                let planned = planner.services().contains_key(&service.id);
                prop_assert_eq!(explanation.outcome.is_ok(), planned);
            }
        }
    }
}

/// The explanation of each endpoint of the first port for the list of a group on a node, in order.
fn verdicts(planner: &Planner, node: &str, service: &str) -> Vec<String> {
    let id = ServiceId::new("shop", service);
    let served = planner.explain(node, &id).unwrap().outcome.unwrap();
    let group = &served.ports[0].groups[0];
    let verdicts = group.endpoints.iter().map(|e| match &e.verdict {
        Verdict::In(why) => format!("{} in: {why}", e.address),
        Verdict::Out(why) => format!("{} out: {why}", e.address),
    });
    verdicts.collect()
}

/// A Service for each way to select endpoints.
const REASONS: &str = r#"
services:
- {id: shop/local, ips: [10.96.0.1], ports: [80/TCP], internal: Local}
- {id: shop/zoned, ips: [10.96.0.2], ports: [80/TCP]}
- {id: shop/noded, ips: [10.96.0.3], ports: [80/TCP]}
- {id: shop/ending, ips: [10.96.0.4], ports: [80/TCP]}
slices:
- id: shop/local-1
  service: local
  ports: [80/TCP]
  endpoints:
  - {address: 10.0.0.1, node: n1, ready: false, terminating: true}
  - {address: 10.0.0.2, node: n1, ready: false}
  - {address: 10.0.0.3, node: n2}
  - {address: 10.0.0.4}
- id: shop/zoned-1
  service: zoned
  ports: [80/TCP]
  endpoints:
  - {address: 10.0.0.1, node: n1, for_zones: [z1]}
  - {address: 10.0.0.2, node: n2, for_zones: [z2, z3]}
  - {address: 10.0.0.3, node: n1, ready: false, for_zones: [z1]}
- id: shop/noded-1
  service: noded
  ports: [80/TCP]
  endpoints:
  - {address: 10.0.0.1, node: n1, for_nodes: [n1]}
  - {address: 10.0.0.2, node: n2, for_nodes: [n2]}
- id: shop/ending-1
  service: ending
  ports: [80/TCP]
  endpoints:
  - {address: 10.0.0.1, node: n1, ready: false, terminating: true}
  - {address: 10.0.0.2, node: n1, ready: false, serving: false, terminating: true}
nodes:
- {name: n1, zone: z1}
- {name: n2}
"#;

/// S-42 to S-44, S-58, S-59: each reason in its case.
#[test]
fn every_reason_has_its_case() {
    let cluster: Cluster = serde_saphyr::from_str(REASONS).unwrap();
    let mut planner = Planner::default();
    planner.apply(cluster.events());
    let cases = [
        (
            "local",
            // A ready endpoint on another node does not matter here.
            [
                "10.0.0.1 in: terminating but still serving, and no endpoint on this node is ready",
                "10.0.0.2 out: not ready",
                "10.0.0.3 out: runs on node n2; policy Local",
                "10.0.0.4 out: has no nodeName, so it is local to no node; policy Local",
            ]
            .as_slice(),
        ),
        (
            "zoned",
            &[
                "10.0.0.1 in: ready, hint for zone z1",
                "10.0.0.2 out: hints for zones z2, z3",
                "10.0.0.3 out: not ready",
            ],
        ),
        (
            "noded",
            &[
                "10.0.0.1 in: ready, hint for node n1",
                "10.0.0.2 out: hint for node n2",
            ],
        ),
        (
            "ending",
            &[
                "10.0.0.1 in: terminating but still serving, and no endpoint is ready",
                "10.0.0.2 out: terminating and no longer serving",
            ],
        ),
    ];
    for (service, expected) in cases {
        assert_eq!(verdicts(&planner, "n1", service), expected, "{service}");
    }
    let elsewhere = verdicts(&planner, "n2", "local");
    assert_eq!(elsewhere[2], "10.0.0.3 in: ready");
}

/// One endpoint in many copies: each slice has a reason of its own, seen from n1.
const COPIES: &str = r#"
services:
- {id: shop/copies, ips: [10.96.0.1], ports: [80/TCP], internal: Local}
slices:
- {id: shop/ending, service: copies, ports: [80/TCP], endpoints: [{address: 10.0.0.1, node: n1, ready: false, terminating: true}]}
- {id: shop/first, service: copies, ports: [80/TCP], endpoints: [{address: 10.0.0.1, node: n2}, {address: 10.0.0.1, node: n3, ready: false, serving: false}]}
- {id: shop/later, service: copies, ports: [80/TCP], endpoints: [{address: 10.0.0.1, node: n3}]}
- {id: shop/none, service: copies, generation: 9, ports: [80/TCP], endpoints: [{address: 10.0.0.1}]}
- {id: shop/own, service: copies, ports: [80/TCP], endpoints: [{address: 10.0.0.1, node: n1}]}
nodes:
- {name: n1}
- {name: n2}
"#;

/// S-217, S-245: no slice is said to be less than itself, and the copies that a node uses are not said to be unused.
#[test]
fn each_unused_copy_has_its_reason() {
    let cluster: Cluster = serde_saphyr::from_str(COPIES).unwrap();
    let mut planner = Planner::default();
    planner.apply(cluster.events());
    let id = ServiceId::new("shop", "copies");
    let served = planner.explain("n1", &id).unwrap().outcome.unwrap();
    let apart = served.ports[0].apart.iter();
    let apart: Vec<_> = apart
        .map(|apart| format!("{}: {}", apart.slice.name, apart.reason))
        .collect();
    let first = "EndpointSlice shop/first takes precedence:";
    assert_eq!(
        apart,
        [
            format!("ending: {first} this copy is terminating and the other is not"),
            "first: another entry of this slice takes precedence: this copy is not ready and the other is"
                .to_owned(),
            format!("later: {first} that slice comes first by name"),
            format!("none: {first} this copy names no node and the other does"),
        ]
    );
    assert_eq!(verdicts(&planner, "n1", "copies"), ["10.0.0.1 in: ready"]);
    let slice = &served.ports[0].groups[0].endpoints[0].slice;
    assert_eq!(&*slice.name, "own");
}
