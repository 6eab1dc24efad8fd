//! The objects of the measured cluster: texts and addresses only.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::{Value, json};

use crate::bench::scale::{ADDRESS, NODE};

/// The Service whose only endpoint moves.
pub(super) const PROBE: &str = "probe";
/// Addresses between which it moves.
pub(super) const PLACES: [Ipv4Addr; 2] =
    [Ipv4Addr::new(10, 255, 0, 1), Ipv4Addr::new(10, 255, 0, 2)];
/// The port of each Service.
const PORT: u16 = 80;
/// The port of each endpoint.
pub(super) const TARGET_PORT: u16 = 8080;
/// The address of the first Service: above those that an API server gives to its own.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 96, 16, 0);
/// The first endpoint. Pods of other nodes have addresses of 10.128.0.0/9.
const FIRST_ENDPOINT: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 1);

fn plus(address: Ipv4Addr, number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(address) + number)
}

/// Where a Service is reached.
pub(super) fn frontend(number: u32) -> SocketAddr {
    (plus(FIRST, number), PORT).into()
}

/// Where an endpoint is reached.
pub(super) fn backend(number: u32) -> SocketAddr {
    (plus(FIRST_ENDPOINT, number), TARGET_PORT).into()
}

/// The measured node.
pub(super) fn node() -> Value {
    json!({
        "metadata": {"name": NODE, "labels": {"topology.kubernetes.io/zone": "zone-1"}},
        "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]},
        "status": {"addresses": [{"type": "InternalIP", "address": ADDRESS}]},
    })
}

/// The name of a Service.
pub(super) fn name(number: u32) -> String {
    format!("service-{number}")
}

/// A Service at the address of this number.
pub(super) fn service(name: &str, number: u32) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "clusterIP": plus(FIRST, number).to_string(),
            "ports": [{"name": "http", "port": PORT, "protocol": "TCP", "targetPort": TARGET_PORT}],
        },
    })
}

/// The slice of a Service.
pub(super) fn slice(service: &str, addresses: impl Iterator<Item = Ipv4Addr>) -> Value {
    json!({
        "metadata": {
            "name": service,
            "labels": {
                "kubernetes.io/service-name": service,
                "endpointslice.kubernetes.io/managed-by": "bench",
            },
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": TARGET_PORT, "protocol": "TCP"}],
        "endpoints": endpoints(addresses),
    })
}

/// The slice of the Service with this number.
pub(super) fn slice_of(number: u32, count: u32) -> Value {
    let first = number * count;
    let addresses = (first..first + count).map(|endpoint| plus(FIRST_ENDPOINT, endpoint));
    slice(&name(number), addresses)
}

/// The list of a slice.
pub(super) fn endpoints(addresses: impl Iterator<Item = Ipv4Addr>) -> Value {
    addresses
        .map(|address| {
            json!({
                "addresses": [address.to_string()], "nodeName": "others", "zone": "zone-1",
                "conditions": {"ready": true, "serving": true, "terminating": false},
            })
        })
        .collect()
}
