//! The cost of comparisons, and their results for clusters that random histories do not generate.

use portolan_plan::{Family, ServiceId};
use portolan_planner::Planner;
use portolan_planner::compare::{Difference, Left, Plans, ServedBy, Term};
use portolan_planner::model::Event;

use crate::build::{
    GivenEndpoint, GivenExternal, GivenNode, GivenPolicy, GivenService, GivenSlice,
};

fn planner(events: impl IntoIterator<Item = Event>) -> Planner {
    let mut planner = Planner::default();
    planner.apply(events);
    planner
}

fn whole(before: &Planner, after: &Planner) -> Difference {
    Difference::between(&before.into(), &after.into())
}

/// Enough nodes and Services for a scan of all pairs to be noticeable.
const MANY: usize = 100;
const ZONES: [&str; 4] = ["z1", "z2", "z3", "z4"];

fn node(number: usize, zone: &str) -> Event {
    let node = GivenNode {
        name: format!("n{number}"),
        zone: Some(zone.into()),
        ..Default::default()
    };
    node.build().into()
}

fn service(number: usize, internal: GivenPolicy) -> Event {
    let service = GivenService {
        id: format!("ns/s{number}"),
        ips: vec![format!("10.96.0.{number}").parse().unwrap()],
        ports: vec!["http 80/TCP".into()],
        internal,
        ..Default::default()
    };
    service.build().into()
}

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

fn slice(number: usize, endpoints: Vec<GivenEndpoint>) -> Event {
    let slice = GivenSlice {
        id: format!("ns/s{number}-1"),
        service: Some(format!("s{number}")),
        ports: vec!["http 8080/TCP".into()],
        endpoints,
        ..Default::default()
    };
    slice.build().into()
}

fn zoned(number: usize) -> GivenEndpoint {
    let mut endpoint = endpoint(number);
    endpoint.for_zones = vec![ZONES[number % ZONES.len()].into()];
    endpoint
}

/// A hundred nodes in four zones, and a hundred Services with an endpoint in each zone.
fn cluster(endpoint: fn(usize) -> GivenEndpoint) -> Vec<Event> {
    let nodes = (0..MANY).map(|number| node(number, ZONES[number % ZONES.len()]));
    let services = (0..MANY).flat_map(|number| {
        let endpoints = (0..ZONES.len()).map(endpoint).collect();
        [
            service(number, GivenPolicy::Cluster),
            slice(number, endpoints),
        ]
    });
    nodes.chain(services).collect()
}

#[test]
fn a_difference_costs_a_look_at_each_zone_and_at_the_nodes_that_a_service_names() {
    let before = planner(cluster(endpoint));
    let mut after = planner(cluster(endpoint));
    for number in 0..10 {
        // One of four endpoints on four nodes moves to a fifth.
        after.apply([slice(
            number,
            vec![endpoint(0), endpoint(1), endpoint(2), endpoint(7)],
        )]);
    }
    let found = whole(&before, &after);
    assert_eq!((found.services.len(), found.differing.count), (10, MANY));
    let named = 5;
    assert_eq!(found.compared, 10 * (ZONES.len() + named));
}

#[test]
fn a_node_that_moves_to_another_zone_costs_a_look_at_each_service_with_zone_hints() {
    let before = planner(cluster(zoned));
    let mut after = planner(cluster(zoned));
    after.apply([node(50, "z1")]);
    let found = whole(&before, &after);
    assert_eq!((found.services.len(), found.nodes.len()), (MANY, 1));
    let first = &found.services.values().next().unwrap();
    assert_eq!((first.nodes.count, &*first.nodes.names[0]), (1, "n50"));
    assert_eq!(first.served[0].before.by, ServedBy::Zone("z3".into()));
    assert_eq!(first.served[0].after.by, ServedBy::Zone("z1".into()));
    assert_eq!(found.compared, MANY);
    let mut plain = planner(cluster(endpoint));
    let before = Plans::from(&plain);
    plain.apply([node(50, "z1")]);
    let found = Difference::between(&before, &Plans::from(&plain));
    assert_eq!((found.services.len(), found.nodes.len()), (0, 1));
    assert_eq!(found.compared, 0, "without hints a zone does not matter");
}

#[test]
fn a_local_service_on_every_node_costs_a_look_at_each_of_its_nodes() {
    let endpoints = || (0..MANY).map(endpoint).collect::<Vec<_>>();
    let nodes = || (0..MANY).map(|number| node(number, "z1"));
    let local = || [service(1, GivenPolicy::Local), slice(1, endpoints())];
    let before = planner(nodes().chain(local()));
    let mut after = planner(nodes().chain(local()));
    // It remains an endpoint of its node, which is all that the node's own entry contains.
    let mut unready = endpoints();
    (unready[7].ready, unready[7].serving) = (false, false);
    after.apply([slice(1, unready)]);
    let found = whole(&before, &after);
    let difference = &found.services[&ServiceId::new("ns", "s1")];
    assert_eq!((difference.nodes.count, &difference.left), (1, &None));
    assert_eq!(
        (&*difference.nodes.names[0], difference.own.count),
        ("n7", 0)
    );
    assert_eq!(difference.emptied, difference.nodes);
    let served = &difference.served[..];
    assert_eq!(served.len(), 1);
    assert_eq!(
        (served[0].before.endpoints, served[0].after.endpoints),
        (1, 0)
    );
    assert_eq!(found.compared, MANY);
}

/// S-134: load balancers also check nodes without endpoints.
#[test]
fn another_health_port_concerns_every_node() {
    let balanced = |health_port| {
        let service = GivenService {
            id: "ns/s1".into(),
            ips: vec!["10.96.0.1".parse().unwrap()],
            ports: vec!["http 80/TCP".into()],
            external: Some(GivenExternal {
                balancer: vec!["203.0.113.1".parse().unwrap()],
                policy: GivenPolicy::Local,
                health_port: Some(health_port),
                ..Default::default()
            }),
            ..Default::default()
        };
        Event::from(service.build())
    };
    for endpoints in [0, 1] {
        let cluster = |health_port| {
            let nodes = (0..MANY).map(|number| node(number, "z1"));
            let slice = slice(1, (0..endpoints).map(endpoint).collect());
            planner(nodes.chain([balanced(health_port), slice]))
        };
        let found = whole(&cluster(32000), &cluster(32001));
        let difference = &found.services[&ServiceId::new("ns", "s1")];
        assert_eq!((difference.nodes.count, difference.own.count), (MANY, MANY));
        assert_eq!(
            (difference.terms.len(), difference.terms[0].term),
            (1, Term::HealthPort)
        );
        assert_eq!(found.compared, 1 + endpoints);
    }
}

#[test]
fn ports_without_endpoints_are_distinguished_from_services_without_any() {
    let dual = |ips: &[&str]| {
        let service = GivenService {
            id: "ns/s1".into(),
            ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
            ports: vec!["http 80/TCP".into()],
            ..Default::default()
        };
        service.build().into()
    };
    let six = |endpoints| {
        let slice = GivenSlice {
            id: "ns/s1-2".into(),
            service: Some("s1".into()),
            ports: vec!["http 8080/TCP".into()],
            endpoints,
            ..Default::default()
        };
        slice.build().into()
    };
    let both = ["10.96.0.1", "fd00::1"];
    let one = || GivenEndpoint {
        address: "fd00:244::1".parse().unwrap(),
        ..endpoint(1)
    };
    let before = || planner([dual(&both), slice(1, vec![endpoint(1)]), six(vec![one()])]);
    let left = |events: Vec<Event>| {
        let (old, mut new) = (before(), before());
        new.apply(events);
        let found = whole(&old, &new);
        found.services[&ServiceId::new("ns", "s1")].left.clone()
    };
    let Some(Left::InPart(ports)) = left(vec![six(Vec::new())]) else {
        panic!("IPv4 still has its endpoint");
    };
    let ports: Vec<_> = ports
        .iter()
        .map(|(port, family)| (&*port.name, *family))
        .collect();
    assert_eq!(ports, [("http", Family::Ipv6)]);
    assert_eq!(
        left(vec![six(Vec::new()), slice(1, Vec::new())]),
        Some(Left::WithNothing)
    );
    // The endpoints of a removed family are not reported as lost.
    assert_eq!(left(vec![dual(&both[..1])]), None);
}
