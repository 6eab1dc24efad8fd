//! Services with all kinds of frontends.

use serde_json::{Value, json};

use super::plan::{list, service};
use super::traffic::{TCP_PORT, UDP_PORT};
use super::world::World;

/// Addresses of the Service `web`, in both families.
pub(crate) const CLUSTER_IP: [&str; 2] = ["10.96.0.20", "fd00:10:96::20"];
pub(crate) const EXTERNAL_IP: [&str; 2] = ["198.51.100.10", "2001:db8:10::10"];
pub(crate) const LOAD_BALANCER: [&str; 2] = ["203.0.113.7", "2001:db8:113::7"];
pub(crate) const NODE_PORT: u16 = 30080;

/// An address with a port.
pub(crate) fn at(address: &str, port: u16) -> String {
    let address: std::net::IpAddr = address.parse().unwrap();
    std::net::SocketAddr::new(address, port).to_string()
}

/// All frontends of `web`, by kind.
pub(crate) fn frontends(port: u16) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    for family in 0..2 {
        all.push(("ClusterIP", at(CLUSTER_IP[family], port)));
        all.push(("NodePort", at(super::world::NODE[family], NODE_PORT)));
        all.push(("LoadBalancer", at(LOAD_BALANCER[family], port)));
        all.push(("ExternalIP", at(EXTERNAL_IP[family], port)));
    }
    all
}

/// A Service with all kinds of frontends in both families, on port 80 (TCP) or 53 (UDP), with these backends.
pub(crate) fn everywhere(protocol: &str, port: u16, backends: &[&str]) -> Value {
    let mut service = service(
        &protocol.to_lowercase(),
        protocol,
        &at(CLUSTER_IP[0], port),
        &[],
    );
    let frontend = |kind, address: &str| json!({"kind": kind, "address": address, "port": port});
    let mut frontends = vec![json!({"kind": "NodePort", "address": null, "port": NODE_PORT})];
    for family in 0..2 {
        frontends.push(frontend("ClusterIP", CLUSTER_IP[family]));
        frontends.push(frontend("LoadBalancer", LOAD_BALANCER[family]));
        frontends.push(frontend("ExternalIP", EXTERNAL_IP[family]));
    }
    let of_port = &mut service["ports"][0];
    of_port["frontends"] = frontends.into();
    of_port["internal"] = list(backends);
    of_port["external"] = list(backends);
    service
}

/// That Service over TCP on port 80, with all pods.
pub(crate) fn web(world: &World) -> Value {
    let backends = world.backends(TCP_PORT);
    everywhere("TCP", 80, &texts(&backends))
}

/// That Service over UDP on port 53, with all pods.
pub(crate) fn dns(world: &World) -> Value {
    let backends = world.backends(UDP_PORT);
    everywhere("UDP", 53, &texts(&backends))
}

pub(crate) fn texts(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}
