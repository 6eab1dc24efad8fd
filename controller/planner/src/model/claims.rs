//! The claims of Services, by which conflicting Services find each other at a cost proportional to the result.

use std::collections::BTreeSet;
use std::net::IpAddr;

use portolan_plan::Protocol;

use super::Service;

/// A resource that only one Service can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claim {
    /// An address and port.
    Place(IpAddr, Protocol, u16),
    /// A node port or health check port, independent of the protocol.
    NodePort(u16),
    /// A port on external addresses: one of them may be an address of a node, where it conflicts with a node port of
    /// the same number. Not exclusive by itself.
    ExternalPort(u16),
}

impl Claim {
    /// All address claims in this range of addresses.
    pub(super) fn places(first: IpAddr, last: IpAddr) -> std::ops::RangeInclusive<Self> {
        Self::Place(first, Protocol::Tcp, 0)..=Self::Place(last, Protocol::Sctp, u16::MAX)
    }
}

/// All claims of a Service, without duplicates. Claims that will be refused are included, because a refusal may
/// change.
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
