//! A Service at the limits costs its own endpoints, and nothing of any other Service (S-228).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::build::{
    Cluster, GivenEndpoint, GivenExternal, GivenNode, GivenPolicy, GivenService, GivenSlice,
};
use portolan_plan::{Entry, EntryKey, Head, Local};
use portolan_planner::Planner;

/// Real servers of a Service on a node, as the document of limits says.
const MAX_REAL_SERVERS: usize = 262_144;

fn address(start: [u8; 4], number: usize) -> IpAddr {
    let start = u32::from(Ipv4Addr::from(start));
    Ipv4Addr::from(start + u32::try_from(number).unwrap()).into()
}

fn endpoint(number: usize, node: &str, ready: bool) -> GivenEndpoint {
    GivenEndpoint {
        address: address([10, 244, 0, 1], number),
        node: Some(node.into()),
        ready,
        serving: true,
        terminating: false,
        for_nodes: Vec::new(),
        for_zones: Vec::new(),
    }
}

fn node(name: &str) -> GivenNode {
    GivenNode {
        name: name.into(),
        addresses: vec![[192, 168, 50, 11].into()],
        ..GivenNode::default()
    }
}

fn ports(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("p{n} {n}/TCP")).collect()
}

fn wide(ports: Vec<String>) -> GivenService {
    GivenService {
        id: "tenant/wide".into(),
        ips: vec![[10, 96, 0, 1].into()],
        ports,
        ..GivenService::default()
    }
}

/// Slices of at most 1,000 endpoints for all ports.
fn slices(ports: &[String], endpoints: Vec<GivenEndpoint>) -> Vec<GivenSlice> {
    let mut slices = Vec::new();
    let mut endpoints = endpoints.into_iter().peekable();
    while endpoints.peek().is_some() {
        slices.push(GivenSlice {
            id: format!("tenant/wide-{:04}", slices.len()),
            service: Some("wide".into()),
            ports: ports.to_vec(),
            endpoints: endpoints.by_ref().take(1_000).collect(),
            ..GivenSlice::default()
        });
    }
    slices
}

fn planned(mut cluster: Cluster) -> Planner {
    cluster.services.push(GivenService {
        id: "shop/web".into(),
        ips: vec![[10, 96, 1, 1].into()],
        ports: vec!["http 80/TCP".into()],
        ..GivenService::default()
    });
    cluster.slices.push(GivenSlice {
        id: "shop/web-1".into(),
        service: Some("web".into()),
        ports: vec!["http 8080/TCP".into()],
        endpoints: vec![endpoint(60_000, "node-a", true)],
        ..GivenSlice::default()
    });
    let mut planner = Planner::default();
    drop(planner.apply(cluster.events()));
    planner
}

/// The entries of a Service on node-a.
fn entries(planner: &Planner, service: &str) -> Vec<(EntryKey, Entry)> {
    let node = planner.node("node-a").unwrap();
    let part = format!("/{service}");
    let of_service = |(key, _): &(EntryKey, Entry)| key.to_string().contains(&part);
    planner.entries_for(node).filter(of_service).collect()
}

fn warnings(planner: &Planner) -> Vec<String> {
    let node = planner.node("node-a").unwrap();
    let all = planner.warnings(node);
    all.iter()
        .map(|warning| format!("{}: {}", warning.object, warning.reason))
        .collect()
}

/// Frontends times endpoints of a Service: what an agent programs.
fn real_servers(entries: &[(EntryKey, Entry)]) -> usize {
    let mut frontends = 0;
    let mut longest = 0;
    for (_, entry) in entries {
        match entry {
            Entry::Head(head) => {
                frontends = head.ports.iter().map(|port| port.frontends.len()).sum();
            }
            Entry::List(list) => longest = longest.max(list.as_slice().len()),
            _ => {}
        }
    }
    frontends * longest
}

#[test]
fn endpoints_beyond_the_limit_are_left_out_ready_ones_last() {
    let ports = ports(500);
    let endpoints = (0..2_000)
        .map(|n| endpoint(n, "node-a", n >= 1_000))
        .collect();
    let planner = planned(Cluster {
        slices: slices(&ports, endpoints),
        services: vec![wide(ports)],
        nodes: vec![node("node-a")],
        ..Cluster::default()
    });
    let wide = entries(&planner, "tenant/wide");
    let servers = real_servers(&wide);
    assert!((200_000..=MAX_REAL_SERVERS).contains(&servers), "{servers}");
    let lists = wide.iter().filter_map(|(_, entry)| match entry {
        Entry::List(list) => Some(list),
        _ => None,
    });
    // All of the endpoints that are used are ready ones, which come later.
    let first_ready = address([10, 244, 0, 1], 1_000);
    for list in lists {
        assert_eq!(list.as_slice().len(), 524);
        assert_eq!(list.as_slice()[0].address, first_ready);
    }
    let all = warnings(&planner);
    let about: Vec<_> = all
        .iter()
        .filter(|text| text.contains("EndpointSlices:"))
        .collect();
    assert!(
        about.iter().all(|text| text.contains("tenant/wide")),
        "{all:?}"
    );
    assert!(
        about.iter().any(|text| text.contains("are not used")),
        "{all:?}"
    );
    assert_eq!(entries(&planner, "shop/web").len(), 3);
}

#[test]
fn one_node_has_a_bounded_number_of_local_endpoints_and_its_health_is_complete() {
    let ports = ports(100);
    let service = GivenService {
        external: Some(GivenExternal {
            balancer: vec![[203, 0, 113, 1].into()],
            policy: GivenPolicy::Local,
            health_port: Some(30_999),
            ..GivenExternal::default()
        }),
        ..wide(ports.clone())
    };
    let planner = planned(Cluster {
        slices: slices(
            &ports,
            (0..200).map(|n| endpoint(n, "node-a", true)).collect(),
        ),
        services: vec![service],
        nodes: vec![node("node-a")],
        ..Cluster::default()
    });
    let wide = entries(&planner, "tenant/wide");
    let local: Vec<&Arc<Local>> = wide
        .iter()
        .filter_map(|(_, entry)| match entry {
            Entry::Local(local) => Some(local),
            _ => None,
        })
        .collect();
    assert_eq!(local[0].endpoints.len(), 8_192);
    assert_eq!(local[0].health.unwrap().ipv4, 200);
    let all = warnings(&planner);
    let local = "node-a has more than 8192 endpoints times ports";
    assert!(all.iter().any(|text| text.contains(local)), "{all:?}");
}

#[test]
fn ports_on_many_sets_of_nodes_have_a_bounded_number_of_heads() {
    let ports = ports(60);
    // Each port has its endpoint on a node of its own.
    let slices = ports.iter().enumerate().map(|(number, port)| GivenSlice {
        id: format!("tenant/wide-{number}"),
        service: Some("wide".into()),
        ports: vec![port.clone()],
        endpoints: vec![endpoint(number, &format!("n{number}"), true)],
        ..GivenSlice::default()
    });
    let nodes = (0..60).map(|number| node(&format!("n{number}")));
    let planner = planned(Cluster {
        slices: slices.collect(),
        services: vec![GivenService {
            internal: GivenPolicy::Local,
            external: Some(GivenExternal {
                balancer: vec![[203, 0, 113, 1].into()],
                policy: GivenPolicy::Local,
                ..GivenExternal::default()
            }),
            ..wide(ports)
        }],
        nodes: nodes.chain([node("node-a")]).collect(),
        ..Cluster::default()
    });
    let heads: BTreeSet<*const Head> = planner
        .nodes()
        .values()
        .flat_map(|node| planner.entries_for(node))
        .filter_map(|(key, entry)| match entry {
            Entry::Head(head) if key.to_string() == "head/tenant/wide" => Some(Arc::as_ptr(&head)),
            _ => None,
        })
        .collect();
    assert_eq!(heads.len(), 32);
    let all = warnings(&planner);
    assert!(
        all.iter()
            .any(|text| text.contains("different sets of nodes")),
        "{all:?}"
    );
}
