//! What Services claim for themselves, so that rivals find each other at the cost of the answer.

use std::collections::BTreeSet;
use std::net::IpAddr;

use portolan_plan::Protocol;

use super::Service;

/// Something that only one Service can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claim {
    /// A port of an address.
    Place(IpAddr, Protocol, u16),
    /// A port of the nodes, of whatever protocol: a node port or a health check port.
    NodePort(u16),
    /// A port on external addresses: one of them may be a node's, where a node port has the same
    /// number. No rivalry by itself.
    ExternalPort(u16),
}

impl Claim {
    /// All places on these addresses, from the first to the last.
    pub(super) fn places(first: IpAddr, last: IpAddr) -> std::ops::RangeInclusive<Self> {
        Self::Place(first, Protocol::Tcp, 0)..=Self::Place(last, Protocol::Sctp, u16::MAX)
    }
}

/// Everything that a Service claims, each once. Claims that will be refused count too: whether they
/// are may change.
pub(super) fn claims_of(service: &Service) -> BTreeSet<Claim> {
    let mut claims = BTreeSet::new();
    let external = || service.external_addresses().map(|(_, address)| address);
    let is_external = external().next().is_some();
    for port in &service.ports {
        for address in service.cluster_ips.iter().copied().chain(external()) {
            claims.insert(Claim::Place(address, port.protocol, port.port));
        }
        claims.extend(port.node_port.map(Claim::NodePort));
        claims.extend(is_external.then_some(Claim::ExternalPort(port.port)));
    }
    claims.extend(service.health_port().map(Claim::NodePort));
    claims
}
