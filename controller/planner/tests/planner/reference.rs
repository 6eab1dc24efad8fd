//! An independent model of endpoint selection: the planner shares lists between nodes; this model computes the list
//! of each node separately, as a proxy does that watches the objects itself.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use crate::histories::{NODES, event, history};
use portolan_plan::{
    Backend, ExternalClients, Family, Head, HeadPort, ListKey, ListUse, NodeEntry, Policy, Scope,
};
use portolan_planner::model::{ClusterModel, Endpoint, Service, ServicePort};
use portolan_planner::{HintKind, HintOutcome, HintState, PlannedService, Planner};
use proptest::prelude::*;

type Reached = (IpAddr, u16);

/// All endpoints of a port and family, without duplicates (S-50, S-51, S-217). For the list of one node, copies that
/// name the node come before others (S-245).
fn endpoints<'a>(
    model: &'a ClusterModel,
    service: &Service,
    port: &ServicePort,
    family: Family,
    of_node: Option<&Arc<str>>,
) -> Vec<(Reached, &'a Endpoint)> {
    let mut copies = Vec::new();
    for slice in model.slices_of(&service.id) {
        for own in slice
            .ports
            .iter()
            .filter(|own| own.name == port.name && own.protocol == port.protocol)
        {
            let of_family = slice
                .endpoints
                .iter()
                .filter(|e| Family::of(e.address) == family);
            copies.extend(of_family.map(|e| ((e.address, own.port), slice, e)));
        }
    }
    // Stable sort: of two copies in one slice the first remains.
    copies.sort_by_key(|(reached, slice, e)| {
        (
            *reached,
            !e.ready,
            !(e.serving && e.terminating),
            e.terminating,
            of_node.is_some() && e.node.as_ref() != of_node,
            e.node.is_none(),
            std::cmp::Reverse(slice.generation),
            slice.id.clone(),
        )
    });
    copies.dedup_by_key(|(reached, ..)| *reached);
    copies
        .into_iter()
        .map(|(reached, _, e)| (reached, e))
        .collect()
}

fn chosen(all: &[(Reached, &Endpoint)], keep: impl Fn(&Endpoint) -> bool) -> BTreeSet<Reached> {
    all.iter()
        .filter(|(_, e)| keep(e))
        .map(|(reached, _)| *reached)
        .collect()
}

/// The endpoints of a port and family, for lists of the cluster and for the list of one node.
struct Views<'a> {
    all: Vec<(Reached, &'a Endpoint)>,
    of_node: Vec<(Reached, &'a Endpoint)>,
}

/// S-41 to S-43, S-57 to S-61, S-64, for one node.
fn expected(views: &Views<'_>, policy: Policy, node: &NodeEntry) -> BTreeSet<Reached> {
    let all = &views.all;
    let ending = |e: &Endpoint| e.serving && e.terminating;
    if policy == Policy::Local {
        let own = |e: &Endpoint| e.node.as_ref() == Some(&node.name);
        let ready = chosen(&views.of_node, |e| own(e) && e.ready);
        return if ready.is_empty() {
            chosen(&views.of_node, |e| own(e) && ending(e))
        } else {
            ready
        };
    }
    let ready = chosen(all, |e| e.ready);
    if ready.is_empty() {
        return chosen(all, ending);
    }
    let by_hint = |hints: fn(&Endpoint) -> &[Arc<str>], name: &Arc<str>| {
        let complete = all.iter().all(|(_, e)| !e.ready || !hints(e).is_empty());
        let named = chosen(all, |e| e.ready && hints(e).contains(name));
        (complete && !named.is_empty()).then_some(named)
    };
    by_hint(|e| &e.for_nodes, &node.name)
        .or_else(|| by_hint(|e| &e.for_zones, node.zone.as_ref()?))
        .unwrap_or(ready)
}

/// The same for frontends other than cluster IPs, with the handling of external clients (S-22, S-46, S-49, S-66 to
/// S-68).
fn expected_external(
    views: &Views<'_>,
    policy: Policy,
    node: &NodeEntry,
) -> (BTreeSet<Reached>, ExternalClients) {
    let shared = expected(views, Policy::Cluster, node);
    if policy == Policy::Cluster {
        return (shared, ExternalClients::Allow);
    }
    let own = expected(views, Policy::Local, node);
    let usable_somewhere = !shared.is_empty();
    match (own.is_empty(), usable_somewhere) {
        (false, _) => (own, ExternalClients::Allow),
        (true, true) => (shared, ExternalClients::Drop),
        (true, false) => (shared, ExternalClients::Allow),
    }
}

/// The planner's result for a node.
fn planned_backends(
    planned: &PlannedService,
    port: &HeadPort,
    list: &ListUse,
    family: Family,
    node: &NodeEntry,
) -> BTreeSet<Reached> {
    let key = ListKey {
        service: planned.id.clone(),
        port: port.name.clone(),
        family,
        scope: node.complete(list.choice(family).scope),
    };
    let list = planned.lists_for(node).find(|(own, _)| **own == key);
    let backends = list.into_iter().flat_map(|(_, list)| list.as_slice());
    backends
        .map(|Backend { address, port, .. }| (*address, *port))
        .collect()
}

/// Nodes of the model, and unknown ones, whose plans may be requested soon.
fn nodes(planner: &Planner) -> Vec<NodeEntry> {
    planner
        .nodes()
        .values()
        .map(|node| (**node).clone())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn every_node_is_served_as_if_it_looked_at_the_objects_itself(history in history()) {
        let mut planner = Planner::default();
        for event in history {
            planner.apply([event]);
        }
        for (id, planned) in planner.services() {
            let service = planner.model().service(id).unwrap();
            for node in nodes(&planner) {
                let head = planned.head_for(&node);
                for (at, port) in service.ports.iter().enumerate() {
                    let own = &head.ports[at];
                    for family in Family::BOTH.into_iter().filter(|f| own.has_family(*f)) {
                        let of = |node| endpoints(planner.model(), service, port, family, node);
                        let views = Views { all: of(None), of_node: of(Some(&node.name)) };
                        let expected = expected(&views, service.internal_policy, &node);
                        let found = planned_backends(planned, own, &own.internal, family, &node);
                        prop_assert_eq!(found, expected, "{} {:?} on {}", id, port, node.name);
                        prop_assert_eq!(own.internal.choice(family).external_clients, ExternalClients::Allow);
                        let Some(external) = &own.external else { continue };
                        let policy = service.external.as_ref().unwrap().policy;
                        let found = planned_backends(planned, own, external, family, &node);
                        let external_clients = external.choice(family).external_clients;
                        let expected = expected_external(&views, policy, &node);
                        prop_assert_eq!((found, external_clients), expected, "{} {:?} on {}", id, port, node.name);
                    }
                }
            }
        }
    }

    #[test]
    fn lists_hold_only_endpoints_of_the_model_and_local_ones_only_local_endpoints(history in history()) {
        let mut planner = Planner::default();
        planner.apply(history);
        for planned in planner.services().values() {
            let service = planner.model().service(&planned.id).unwrap();
            for (key, list) in &planned.lists {
                prop_assert_eq!(&key.service, &planned.id);
                let port = service.ports.iter().find(|port| port.name == key.port).unwrap();
                let of_node = match &key.scope {
                    Scope::Local(node) => Some(node),
                    Scope::Cluster | Scope::Zone(_) | Scope::Node(_) => None,
                };
                let all = endpoints(planner.model(), service, port, key.family, of_node);
                for backend in list.as_slice() {
                    let found = all.iter().find(|(reached, _)| *reached == (backend.address, backend.port));
                    let Some((_, endpoint)) = found else {
                        return Err(TestCaseError::fail(format!("{key:?}: {backend:?} is no endpoint")));
                    };
                    let external = service.external.as_ref().map(|external| external.policy);
                    let shared = service.internal_policy == Policy::Cluster || external.is_some();
                    let local = [Some(service.internal_policy), external].contains(&Some(Policy::Local));
                    let belongs = match &key.scope {
                        Scope::Cluster => shared,
                        Scope::Zone(zone) => shared && endpoint.for_zones.contains(zone),
                        Scope::Node(node) => shared && endpoint.for_nodes.contains(node),
                        Scope::Local(node) => local && endpoint.node.as_ref() == Some(node),
                    };
                    prop_assert!(belongs, "{:?} holds {:?}", key, backend);
                }
            }
        }
    }

    /// A list that no node can use would waste memory; a head without its list would reject connections. Only under
    /// policy Local may a list be missing: it is empty.
    #[test]
    fn heads_and_lists_fit_together(history in history()) {
        let mut planner = Planner::default();
        planner.apply(history);
        for planned in planner.services().values() {
            let service = planner.model().service(&planned.id).unwrap();
            let mut used = BTreeSet::new();
            let zones = planned.head_of_zone.keys().map(|zone| ("unknown".into(), Some(zone.clone())));
            let nodes = planned.lists.keys().filter_map(|key| key.scope.node().cloned());
            let nodes = nodes.chain(planned.head_of_node.keys().cloned());
            let zone_of = |node: &Arc<str>| planner.node(node).and_then(|node| node.zone.clone());
            let nodes = nodes.map(|node| { let zone = zone_of(&node); (node, zone) });
            for (name, zone) in zones.chain(nodes).chain([("unknown".into(), None)]) {
                let node = NodeEntry { name, zone, ..NodeEntry::default() };
                used.extend(planned.lists_for(&node).map(|(key, _)| key.clone()));
                for port in &planned.head_for(&node).ports {
                    prop_assert_eq!(port.external.is_some(), port.has_external());
                    for family in Family::BOTH.into_iter().filter(|f| port.has_family(*f)) {
                        let has = |list: &ListUse| {
                            let scope = node.complete(list.choice(family).scope);
                            planned.lists.contains_key(&ListKey { service: planned.id.clone(), port: port.name.clone(), family, scope })
                        };
                        prop_assert!(has(&port.internal) || service.internal_policy == Policy::Local);
                        prop_assert!(port.external.as_ref().is_none_or(has));
                    }
                }
            }
            // If the only frontends are addresses of one node, lists of other zones may be unused.
            let external = |head: &Head| -> Vec<_> { head.ports.iter().map(HeadPort::has_external).collect() };
            if planned.heads.iter().all(|head| external(head) == external(&planned.heads[0])) {
                prop_assert_eq!(used.len(), planned.lists.len(), "every list is in use");
            }
            let distinct = planned.heads.iter().enumerate();
            let same = distinct.flat_map(|(at, head)| planned.heads[..at].iter().map(move |other| head == other));
            prop_assert!(!same.into_iter().any(|same| same), "heads are distinct");
        }
    }

    #[test]
    fn reasons_agree_with_what_a_node_uses(history in history()) {
        let mut planner = Planner::default();
        planner.apply(history);
        for node in nodes(&planner) {
            for planned in planner.services().values() {
                let head = planned.head_for(&node);
                for (hints, outcome) in planned.hints_on(&node) {
                    let port = head.ports.iter().find(|port| port.name == hints.port).unwrap();
                    for list in std::iter::once(&port.internal).chain(&port.external) {
                        let scope = node.complete(list.choice(hints.family).scope);
                        let agrees = match (&outcome, &scope) {
                            (HintOutcome::Used(HintKind::Node), Scope::Node(_)) => hints.nodes == HintState::InForce,
                            (HintOutcome::Used(HintKind::Zone), Scope::Zone(_)) => hints.zones == HintState::InForce,
                            (HintOutcome::Ignored(_), Scope::Cluster) => true,
                            (_, Scope::Local(_)) => list.policy == Policy::Local,
                            _ => false,
                        };
                        prop_assert!(agrees, "{:?} and {}", outcome, scope);
                    }
                }
            }
        }
    }

    #[test]
    fn the_index_finds_the_services_particular_to_a_node(history in history(), last in event()) {
        let mut planner = Planner::default();
        for event in history.into_iter().chain([last]) {
            planner.apply([event]);
        }
        for name in NODES {
            let has_list = |planned: &&Arc<PlannedService>| {
                planned.lists.keys().any(|key| key.scope.node().is_some_and(|node| &**node == name))
                    || planned.head_of_node.contains_key(name)
            };
            let found: Vec<_> = planner.particular_to(name).map(|p| p.id.to_string()).collect();
            let looked: Vec<_> = planner.services().values().filter(has_list).map(|p| p.id.to_string()).collect();
            prop_assert_eq!(found, looked);
        }
        let hinted: Vec<_> = planner.hinted().map(|p| p.id.to_string()).collect();
        let looked = planner.services().values().filter(|p| !p.hints.is_empty());
        prop_assert_eq!(hinted, looked.map(|p| p.id.to_string()).collect::<Vec<_>>());
    }
}
