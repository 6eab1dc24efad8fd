//! Deterministic clusters of any size.
//!
//! Every object is created when it is requested, as by a watch: its names are separate values, so that nothing is
//! equal only because it shares memory.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use portolan_plan::{Policy, Protocol, ServiceId};
use portolan_planner::Planner;
use portolan_planner::model::{
    AddressType, Endpoint, EndpointSlice, Event, External, Node, Service, ServiceCidr, ServicePort,
    SliceId, SlicePort,
};

/// Number of nodes of every cluster.
pub(crate) const NODES: usize = 5_000;
/// Number of endpoints of an ordinary Service.
pub(crate) const ENDPOINTS: usize = 15;
/// Number of endpoints per slice, as the EndpointSlice controller fills them.
const SLICE: usize = 100;
/// Zone names.
const ZONES: [&str; 3] = ["eu-central-1a", "eu-central-1b", "eu-central-1c"];

/// Events of a cluster with this number of ordinary Services.
pub(crate) fn events(services: usize) -> Vec<Event> {
    let cidr = ServiceCidr {
        name: "kubernetes".into(),
        cidrs: vec!["10.96.0.0/12".parse().unwrap()],
    };
    let nodes = (0..NODES).map(|number| node(number, zone_of(number)).into());
    let services = (0..services).flat_map(|number| {
        let slice = slice(number, &[]).into();
        [service(number).into(), slice]
    });
    std::iter::once(cidr.into())
        .chain(nodes)
        .chain(services)
        .collect()
}

/// The same, planned.
pub(crate) fn planned(services: usize) -> Planner {
    let mut planner = Planner::default();
    let update = planner.apply(events(services));
    assert_eq!(
        (update.services.len(), update.nodes.len()),
        (services, NODES)
    );
    planner
}

/// A quarter of Services have zone hints on all their endpoints.
pub(crate) fn is_hinted(service: usize) -> bool {
    service.is_multiple_of(4)
}

/// A third of Services have two ports.
fn ports_of(service: usize) -> usize {
    1 + usize::from(service.is_multiple_of(3))
}

/// A tenth of Services have a load balancer address and node ports.
fn is_external(service: usize) -> bool {
    service % 10 == 5
}

fn names_of(service: usize) -> (Arc<str>, Arc<str>) {
    let namespace = format!("team-{:03}", service % 200);
    (namespace.into(), format!("service-{service:05}").into())
}

/// The name of a node.
pub(crate) fn node_name(number: usize) -> Arc<str> {
    format!("node-{number:05}").into()
}

/// The initial zone of a node.
pub(crate) fn zone_of(node: usize) -> &'static str {
    ZONES[node % ZONES.len()]
}

/// The node of an endpoint of a Service: far from those of its neighbours.
pub(crate) fn host_of(service: usize, endpoint: usize) -> usize {
    (service * ENDPOINTS + endpoint * 1_237) % NODES
}

fn address(network: u8, number: usize) -> IpAddr {
    let number = u32::try_from(number).expect("small clusters");
    Ipv4Addr::from(u32::from(network) << 24 | number).into()
}

/// A Node.
pub(crate) fn node(number: usize, zone: &str) -> Node {
    let pods = format!("10.{}.{}.0/24", 128 + number / 256, number % 256);
    Node {
        name: node_name(number),
        zone: Some(zone.into()),
        labels: std::collections::BTreeMap::new(),
        addresses: vec![address(192, number)],
        pod_cidrs: vec![pods.parse().unwrap()],
        ready: true,
        deleted: false,
        scaled_away: false,
        ignored: Vec::new(),
    }
}

/// A Service with one cluster IP and one or two ports.
pub(crate) fn service(number: usize) -> Service {
    let (namespace, name) = names_of(number);
    let ports = [("http", 80), ("metrics", 9_090)].map(|(name, port)| ServicePort {
        name: name.into(),
        protocol: Protocol::Tcp,
        port,
        node_port: None,
    });
    let service = Service {
        id: ServiceId::new(namespace, name),
        created: i64::try_from(number).ok(),
        cluster_ips: vec![address(10, (96 << 16) + 1 + number)],
        no_cluster_ip: None,
        proxy_name: None,
        app: None,
        ports: ports.into_iter().take(ports_of(number)).collect(),
        internal_policy: Policy::Cluster,
        affinity_seconds: None,
        boot_critical: false,
        scheduler: None,
        drain_seconds: None,
        external: None,
        ignored: Vec::new(),
    };
    if is_external(number) {
        with_balancer(service, number)
    } else {
        service
    }
}

/// The same with a load balancer address and node ports.
pub(crate) fn with_balancer(mut service: Service, number: usize) -> Service {
    service.external = Some(Box::new(External {
        balancer_ips: vec![address(100, number)],
        ..External::default()
    }));
    for (index, port) in service.ports.iter_mut().enumerate() {
        // Two for each of them, within the default node port range.
        port.node_port = u16::try_from(30_000 + number / 10 * 2 + index).ok();
    }
    service
}

/// The slice of an ordinary Service, some of whose endpoints are not ready.
pub(crate) fn slice(service: usize, unready: &[usize]) -> EndpointSlice {
    let endpoints = (0..ENDPOINTS).map(|number| {
        let host = host_of(service, number);
        let mut endpoint = endpoint(service * ENDPOINTS + number, host, is_hinted(service));
        endpoint.ready = !unready.contains(&number);
        endpoint
    });
    slice_of(service, 0, endpoints.collect())
}

/// The Service of a DaemonSet; it has one port.
pub(crate) const DAEMON_SET: usize = 1;

/// The slices of a DaemonSet with a pod on every node.
pub(crate) fn daemon_set() -> Vec<EndpointSlice> {
    (0..NODES / SLICE)
        .map(|place| daemon_slice(place, None))
        .collect()
}

/// One slice of it; one of its pods, given by its index, may be unready.
pub(crate) fn daemon_slice(place: usize, unready: Option<usize>) -> EndpointSlice {
    let endpoints = (0..SLICE).map(|number| {
        let host = place * SLICE + number;
        let mut endpoint = endpoint(host, host, false);
        endpoint.ready = Some(number) != unready;
        endpoint
    });
    slice_of(DAEMON_SET, place, endpoints.collect())
}

fn endpoint(number: usize, host: usize, hinted: bool) -> Endpoint {
    let zone: Arc<str> = zone_of(host).into();
    Endpoint {
        address: address(10, (128 << 16) + number),
        ready: true,
        serving: true,
        terminating: false,
        node: Some(node_name(host)),
        for_nodes: Vec::new(),
        for_zones: if hinted {
            vec![zone_of(host).into()]
        } else {
            Vec::new()
        },
        zone: Some(zone),
    }
}

fn slice_of(service: usize, place: usize, endpoints: Vec<Endpoint>) -> EndpointSlice {
    let (namespace, service_name) = names_of(service);
    let ports = [("http", 8_080), ("metrics", 9_090)].map(|(name, port)| SlicePort {
        name: name.into(),
        protocol: Protocol::Tcp,
        port,
    });
    EndpointSlice {
        id: SliceId {
            namespace,
            name: format!("{service_name}-{place:05}").into(),
        },
        service: Some(service_name),
        generation: 1,
        address_type: AddressType::Ipv4,
        ports: ports.into_iter().take(ports_of(service)).collect(),
        endpoints,
        ignored: Vec::new(),
    }
}
