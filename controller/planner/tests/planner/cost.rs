//! The cost of changes: which Services are planned again, and which parts of their plans are new.

use std::sync::Arc;

use crate::build::{
    GivenEndpoint, GivenExternal, GivenNode, GivenPolicy, GivenService, GivenSlice,
};
use portolan_plan::ServiceId;
use portolan_planner::model::{Event, ObjectChange};
use portolan_planner::{PlannedService, Planner, Update};

/// Number of Services, nodes and endpoints of a test: enough for a scan of all of one of them to be noticeable.
const MANY: usize = 100;

fn endpoint(number: usize) -> GivenEndpoint {
    GivenEndpoint {
        address: format!("10.244.0.{number}").parse().unwrap(),
        node: Some(format!("n{number}")),
        ready: true,
        serving: true,
        terminating: false,
        for_nodes: Vec::new(),
        for_zones: Vec::new(),
    }
}

fn service(number: usize, internal: GivenPolicy) -> Event {
    let service = GivenService {
        id: format!("ns/s{number}"),
        ips: vec![format!("10.96.0.{number}").parse().unwrap()],
        ports: vec!["http 80/TCP".into(), "admin 81/TCP".into()],
        internal,
        ..Default::default()
    };
    service.build().into()
}

fn slice(number: usize, port: &str, endpoints: Vec<GivenEndpoint>) -> Event {
    let slice = GivenSlice {
        id: format!(
            "ns/s{number}-{}",
            port.replace([' ', '/'], "-").to_lowercase()
        ),
        service: Some(format!("s{number}")),
        ports: vec![port.into()],
        endpoints,
        ..Default::default()
    };
    slice.build().into()
}

fn node(name: &str, zone: &str) -> Event {
    let node = GivenNode {
        name: name.into(),
        zone: Some(zone.into()),
        ..Default::default()
    };
    node.build().into()
}

fn zoned(mut endpoint: GivenEndpoint, zone: &str) -> GivenEndpoint {
    endpoint.for_zones = vec![zone.into()];
    endpoint
}

fn own(mut endpoint: GivenEndpoint) -> GivenEndpoint {
    endpoint.for_nodes = endpoint.node.iter().cloned().collect();
    endpoint
}

fn planned<'a>(planner: &'a Planner, name: &str) -> &'a Arc<PlannedService> {
    let mut services = planner.services().values();
    services.find(|planned| &*planned.id.name == name).unwrap()
}

/// A hundred Services with zone hints on a hundred nodes; one Service, `s0`, has a port by node
/// hints and one by zone hints.
fn hinted() -> Planner {
    let mut planner = Planner::default();
    let nodes = (0..MANY).map(|n| node(&format!("n{n}"), "z1"));
    planner.apply(nodes);
    for number in 0..MANY {
        let admin = vec![zoned(endpoint(1), "z1"), zoned(endpoint(2), "z2")];
        let http = match number {
            0 => (0..MANY).map(|n| own(endpoint(n))).collect(),
            _ => vec![zoned(endpoint(1), "z1"), zoned(endpoint(2), "z2")],
        };
        planner.apply([
            service(number, GivenPolicy::Cluster),
            slice(number, "http 8080/TCP", http),
            slice(number, "admin 9090/TCP", admin),
        ]);
    }
    planner
}

#[test]
fn a_node_that_joins_or_moves_to_another_zone_plans_only_services_whose_heads_depend_on_it() {
    let mut planner = hinted();
    // S-62. Zone lists exist independent of the nodes in the zone.
    let joined = planner.apply([node("stranger", "z2")]);
    assert_eq!((joined.planned, joined.nodes.len()), (0, 1));
    let moved = planner.apply([node("stranger", "z1")]);
    assert_eq!(
        (moved.planned, moved.services.len(), moved.nodes.len()),
        (0, 0, 1)
    );
    // On n7 one port of s0 has node hints, and the other follows the zone.
    let moved = planner.apply([node("n7", "nowhere")]);
    assert_eq!(
        (moved.planned, moved.services.len(), moved.nodes.len()),
        (1, 1, 1)
    );
    let labelled = GivenNode {
        name: "n7".into(),
        zone: Some("nowhere".into()),
        addresses: vec!["192.168.1.7".parse().unwrap()],
        ..Default::default()
    };
    let readdressed = planner.apply([labelled.build().into()]);
    assert_eq!(
        (readdressed.planned, readdressed.nodes.len()),
        (0, 1),
        "the zone is the same"
    );
    planner.apply([node("n7", "nowhere")]);
    let again = planner.apply([node("n7", "nowhere")]);
    assert!(again.is_empty());
    assert_eq!(again.planned, 0, "S-188");
    let gone = planner.apply([Event::Node(ObjectChange::Remove("n7".into()))]);
    assert_eq!(gone.planned, 1);
}

#[test]
fn a_node_that_node_hints_serve_completely_may_change_zones_for_nothing() {
    let mut planner = Planner::default();
    let both = |n| zoned(own(endpoint(n)), "z1");
    planner.apply([
        service(1, GivenPolicy::Cluster),
        slice(1, "http 8080/TCP", (0..MANY).map(both).collect()),
        slice(1, "admin 9090/TCP", (0..MANY).map(both).collect()),
        node("n1", "z1"),
    ]);
    let moved = planner.apply([node("n1", "z2")]);
    assert_eq!((moved.planned, moved.nodes.len()), (0, 1));
}

/// S-63.
#[test]
fn heads_are_shared_by_all_nodes_that_see_the_same() {
    let planner = hinted();
    // Lists of the cluster and of zones: nodes of both zones use "the list of their own zone".
    assert_eq!(planned(&planner, "s1").heads.len(), 2);
    // Lists of the cluster, of zones, and of the hundred nodes, all in z1.
    let many = planned(&planner, "s0");
    assert_eq!((many.heads.len(), many.head_of_node.len()), (3, MANY));
    assert_eq!(
        many.lists.len(),
        1 + MANY + 3,
        "http: cluster and nodes; admin: cluster, z1, z2"
    );
}

#[test]
fn a_local_service_on_every_node_has_one_head_and_a_change_renews_one_list() {
    let mut planner = Planner::default();
    let mut endpoints: Vec<_> = (0..MANY).map(endpoint).collect();
    planner.apply([
        service(1, GivenPolicy::Local),
        slice(1, "http 8080/TCP", endpoints),
    ]);
    let before = planned(&planner, "s1").clone();
    assert_eq!((before.heads.len(), before.lists.len()), (1, MANY));
    assert!(before.head_of_node.is_empty());
    endpoints = (0..MANY).map(endpoint).collect();
    endpoints[5].address = "10.244.1.5".parse().unwrap();
    let update = planner.apply([slice(1, "http 8080/TCP", endpoints)]);
    assert_eq!(
        (update.planned, update.services.len(), update.nodes.len()),
        (1, 1, 0)
    );
    let after = planned(&planner, "s1");
    assert!(Arc::ptr_eq(&before.heads[0], &after.heads[0]));
    let renewed = after
        .lists
        .iter()
        .filter(|(key, list)| !Arc::ptr_eq(list, &before.lists[*key]));
    assert_eq!(renewed.count(), 1);
}

/// S-13.
#[test]
fn an_object_added_and_removed_between_two_plans_changes_nothing() {
    let mut planner = hinted();
    let before = planner.services().clone();
    let new = service(MANY + 1, GivenPolicy::Cluster);
    let id = ServiceId::new("ns", format!("s{}", MANY + 1));
    let update = planner.apply([new.clone(), Event::Service(ObjectChange::Remove(id))]);
    assert!(update.is_empty());
    assert_eq!(*planner.services(), before);
    let update = planner.apply([new.clone(), new]);
    assert_eq!((update.planned, update.services.len()), (1, 1));
}

/// S-12. Load balancers share a port number, not an address.
#[test]
fn a_balancer_that_changes_touches_no_other_on_the_same_port() {
    let balancer = |number: usize, policy| -> Event {
        let service = GivenService {
            id: format!("ns/b{number}"),
            ips: vec![format!("10.97.0.{number}").parse().unwrap()],
            ports: vec!["443/TCP".into()],
            external: Some(GivenExternal {
                balancer: vec![format!("203.0.113.{number}").parse().unwrap()],
                policy,
                ..Default::default()
            }),
            ..Default::default()
        };
        service.build().into()
    };
    let mut planner = Planner::default();
    planner.apply((1..=MANY).map(|number| balancer(number, GivenPolicy::Cluster)));
    let update = planner.apply([balancer(7, GivenPolicy::Local)]);
    assert_eq!((update.planned, update.services.len()), (1, 1));
}

/// A node that joins, moves or leaves affects only Services that claim an address of it or of its pods.
#[test]
fn a_nodes_addresses_touch_only_services_that_claim_them() {
    let external = |number: usize, address: &str| -> Event {
        let service = GivenService {
            id: format!("ns/e{number}"),
            ips: vec![format!("10.97.0.{number}").parse().unwrap()],
            ports: vec!["80/TCP".into()],
            external: Some(GivenExternal {
                ips: vec![address.parse().unwrap()],
                ..Default::default()
            }),
            ..Default::default()
        };
        service.build().into()
    };
    let mut planner = hinted();
    planner.apply([
        external(1, "192.168.1.1"),
        external(2, "10.244.9.9"),
        external(3, "203.0.113.3"),
    ]);
    let node = |address: &str, pods: &str| -> Event {
        let node = GivenNode {
            name: "new".into(),
            addresses: vec![address.parse().unwrap()],
            pods: vec![pods.parse().unwrap()],
            ..Default::default()
        };
        node.build().into()
    };
    let touched = |update: Update| {
        update
            .services
            .into_keys()
            .map(|id| id.name.to_string())
            .collect::<Vec<_>>()
    };
    let joined = planner.apply([node("192.168.1.1", "10.244.9.0/24")]);
    assert_eq!(joined.planned, 1);
    assert_eq!(
        touched(joined),
        [""; 0],
        "it only finds the owner of the address"
    );
    // S-203: another address, the same pods.
    let moved = planner.apply([node("192.168.1.2", "10.244.9.0/24")]);
    assert_eq!((moved.planned, moved.nodes.len()), (1, 1));
    let gone = planner.apply([Event::Node(ObjectChange::Remove("new".into()))]);
    assert_eq!((gone.planned, touched(gone)), (0, Vec::<String>::new()));
}

#[test]
fn one_endpoint_changes_the_lists_that_hold_it() {
    let mut planner = hinted();
    let before = planned(&planner, "s1").clone();
    let more = vec![
        zoned(endpoint(1), "z1"),
        zoned(endpoint(2), "z2"),
        zoned(endpoint(3), "z2"),
    ];
    let update = planner.apply([slice(1, "http 8080/TCP", more)]);
    assert_eq!((update.planned, update.services.len()), (1, 1));
    let after = planned(&planner, "s1");
    let renewed = after
        .lists
        .iter()
        .filter(|(key, list)| !Arc::ptr_eq(list, &before.lists[*key]));
    let scopes: Vec<_> = renewed.map(|(key, _)| key.scope.to_string()).collect();
    assert_eq!(scopes, ["cluster", "zone/z2"]);
    assert!(
        after
            .heads
            .iter()
            .zip(&before.heads)
            .all(|(a, b)| Arc::ptr_eq(a, b))
    );
}

/// Both claim it at first, so each is planned when the other changes (S-14); later only one does.
#[test]
fn a_service_that_gave_up_an_address_is_not_planned_again_for_it() {
    let at = |number: usize, address: &str| -> Event {
        let service = GivenService {
            id: format!("ns/s{number}"),
            ips: vec![address.parse().unwrap()],
            ports: vec!["80/TCP".into()],
            ..Default::default()
        };
        service.build().into()
    };
    let mut planner = Planner::default();
    planner.apply([at(1, "10.96.0.1"), at(2, "10.96.0.1")]);
    let moved = planner.apply([at(1, "10.96.0.9")]);
    assert_eq!((moved.planned, moved.services.len()), (2, 2));
    let changed = planner.apply([Event::Service(ObjectChange::Remove(
        planned(&planner, "s2").id.clone(),
    ))]);
    assert_eq!((changed.planned, changed.services.len()), (1, 1));
}
