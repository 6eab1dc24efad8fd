//! The objects of the simulated cluster.
//!
//! Each state of an object contains a number that no other state contains. A plan therefore shows from which state of
//! every object it was made ([`crate::contents`]).

use std::fmt;
use std::net::Ipv4Addr;

use portolan_planner::model::Kind;
use serde_json::{Value, json};

/// Number of nodes, each with an agent.
pub(crate) const NODES: usize = 4;
/// Number of Services, each with one EndpointSlice.
pub(crate) const SERVICES: usize = 5;

/// The port of a Service is this plus the number of its state.
pub(crate) const FIRST_PORT: u16 = 1000;
/// The network of addresses of nodes. The lower half of an address is the number.
const NODE_NETWORK: [u8; 2] = [192, 168];
/// The networks of endpoints in the two zones.
const ENDPOINT_NETWORKS: [[u8; 2]; 2] = [[10, 244], [10, 246]];
/// The zones.
const ZONES: [&str; 2] = ["a", "b"];

/// The Service with a list that is long enough to be sent as a patch.
const LONG: usize = 0;
/// Number of its further endpoints.
const FURTHER_ENDPOINTS: u8 = 100;
/// The Service with `externalTrafficPolicy: Local`.
const LOCAL: usize = 1;
/// The Service whose endpoints have hints for zones.
const HINTED: usize = 2;

/// An object that steps change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    /// A Node.
    Node(usize),
    /// A Service.
    Service(usize),
    /// The EndpointSlice of a Service.
    Slice(usize),
}

impl Name {
    /// All of them.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let services =
            (0..SERVICES).flat_map(|number| [Self::Service(number), Self::Slice(number)]);
        (0..NODES).map(Self::Node).chain(services)
    }

    /// The kind of the object.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Node(_) => Kind::Node,
            Self::Service(_) => Kind::Service,
            Self::Slice(_) => Kind::EndpointSlice,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(number) => write!(f, "Node {}", node(*number)),
            Self::Service(number) => write!(f, "Service {}", service(*number)),
            Self::Slice(number) => write!(f, "EndpointSlice of {}", service(*number)),
        }
    }
}

/// The name of a Node.
pub(crate) fn node(number: usize) -> String {
    format!("node-{number}")
}

/// The name of a Service; its namespace is `shop`.
pub(crate) fn service(number: usize) -> String {
    format!("s{number}")
}

/// The state of an object with this number, at this revision of the store.
pub(crate) fn object(name: Name, number: u16, revision: u64) -> Value {
    match name {
        Name::Node(at) => node_object(at, number, revision),
        Name::Service(at) => service_object(at, number, revision),
        Name::Slice(at) => slice_object(at, number, revision),
    }
}

/// The number in the address of a node.
pub(crate) fn number_of_node(address: Ipv4Addr) -> Option<u16> {
    let [first, second, high, low] = address.octets();
    ([first, second] == NODE_NETWORK).then(|| u16::from_be_bytes([high, low]))
}

/// The number in the address of an endpoint; `None` for those that never change.
pub(crate) fn number_of_endpoint(address: Ipv4Addr) -> Option<u16> {
    let [first, second, high, low] = address.octets();
    let is_numbered = ENDPOINT_NETWORKS.contains(&[first, second]);
    is_numbered.then(|| u16::from_be_bytes([high, low]))
}

fn numbered([first, second]: [u8; 2], number: u16) -> String {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(first, second, high, low).to_string()
}

fn node_object(at: usize, number: u16, revision: u64) -> Value {
    let zone = if number.is_multiple_of(2) { "a" } else { "b" };
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node(at),
            "uid": node(at),
            "resourceVersion": revision.to_string(),
            "labels": {"topology.kubernetes.io/zone": zone},
        },
        "status": {
            "addresses": [{"type": "InternalIP", "address": numbered(NODE_NETWORK, number)}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn service_object(at: usize, number: u16, revision: u64) -> Value {
    let address = format!("10.96.0.{}", at + 1);
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "namespace": "shop",
            "name": service(at),
            "uid": service(at),
            "resourceVersion": revision.to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": address,
            "clusterIPs": [address],
            "ipFamilies": ["IPv4"],
            "ports": [{
                "name": "http",
                "protocol": "TCP",
                "port": FIRST_PORT.saturating_add(number),
                "targetPort": 8080,
            }],
        },
    });
    if at == LOCAL {
        object["spec"]["type"] = json!("LoadBalancer");
        object["spec"]["externalTrafficPolicy"] = json!("Local");
        object["spec"]["healthCheckNodePort"] = json!(31001);
        object["spec"]["ports"][0]["nodePort"] = json!(30001);
        object["status"] = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}});
    }
    object
}

fn slice_object(at: usize, number: u16, revision: u64) -> Value {
    let of_zone = |(network, zone): (&[u8; 2], &&str)| {
        let mut endpoint = json!({
            "addresses": [numbered(*network, number)],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "nodeName": node(usize::from(number) % NODES),
            "zone": zone,
        });
        if at == HINTED {
            endpoint["hints"] = json!({"forZones": [{"name": zone}]});
        }
        endpoint
    };
    let mut endpoints: Vec<Value> = ENDPOINT_NETWORKS.iter().zip(&ZONES).map(of_zone).collect();
    if at == LONG {
        endpoints.extend((1..=FURTHER_ENDPOINTS).map(|last| {
            json!({
                "addresses": [format!("10.245.0.{last}")],
                "conditions": {"ready": true},
                "nodeName": node(0),
            })
        }));
    }
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": "shop",
            "name": format!("{}-1", service(at)),
            "uid": format!("{}-1", service(at)),
            "resourceVersion": revision.to_string(),
            "labels": {"kubernetes.io/service-name": service(at)},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
        "endpoints": endpoints,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_addresses_and_further_endpoints_have_none() {
        let address = |network, number| numbered(network, number).parse().unwrap();
        for number in [1, 255, 256, 60_000] {
            assert_eq!(number_of_node(address(NODE_NETWORK, number)), Some(number));
            for network in ENDPOINT_NETWORKS {
                assert_eq!(number_of_endpoint(address(network, number)), Some(number));
            }
        }
        assert_eq!(number_of_endpoint(Ipv4Addr::new(10, 245, 0, 7)), None);
        assert_eq!(Name::all().count(), NODES + 2 * SERVICES);
    }
}
