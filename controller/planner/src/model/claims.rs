//! What Services claim for themselves, so that rivals find each other at the cost of the answer.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Service;

/// Something that only one Service can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claim {
    /// An address, with some of its ports.
    Address(IpAddr),
    /// A port of the nodes, of whatever protocol: a node port or a health check port.
    NodePort(u16),
    /// A port on external addresses: one of them may be a node's, where a node port has the same
    /// number.
    ExternalPort(u16),
}

/// Everything that a Service claims, each once. Claims that will be refused count too: whether they
/// are may change.
pub(super) fn claims_of(service: &Service) -> BTreeSet<Claim> {
    let own = service.cluster_ips.iter().copied();
    let external = service.external_addresses().map(|(_, address)| address);
    let addresses = own.chain(external).map(Claim::Address);
    let node_ports = service.ports.iter().filter_map(|port| port.node_port);
    let node_ports = node_ports.chain(service.health_port()).map(Claim::NodePort);
    let is_external = service.external_addresses().next().is_some();
    let ports = service.ports.iter().filter(|_| is_external);
    let ports = ports.map(|port| Claim::ExternalPort(port.port));
    addresses.chain(node_ports).chain(ports).collect()
}
