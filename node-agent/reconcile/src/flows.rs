//! UDP flows that connection tracking remembers, and which of them lead past the backends of their
//! frontend (S-123 to S-132).
//!
//! A flow keeps the translation of its first packet for as long as its client sends. One whose
//! backend has gone, or that is older than its frontend, would never reach a backend that is there.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use portolan_plan::{Family, Protocol};

use crate::{Desired, IpvsOp, LinkOp, Op, RealServerKey, VirtualServerKey};

/// A UDP flow as connection tracking remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// Who sent its first datagram.
    pub source: SocketAddr,
    /// To whom, before any translation.
    pub destination: SocketAddr,
    /// Whom answers are expected from: the backend, or the destination itself if nobody translated it.
    pub reply_source: SocketAddr,
    /// The zone in which the first datagram was looked up; 0 unless somebody made zones.
    pub zone: u16,
    /// What the kernel tells it from a later flow of the same client by.
    pub id: Option<u32>,
}

impl Flow {
    /// Its family.
    pub fn family(&self) -> Family {
        Family::of(self.destination.ip())
    }

    /// Whether it goes to a UDP frontend that has backends, and to none of them (S-124, S-125), be
    /// it that it was not translated at all (S-126).
    ///
    /// Nothing is stale at a frontend without backends, or an outage would end all flows (S-127), nor
    /// at an address that is no frontend: node ports are expanded to the node's own addresses before
    /// (S-131), and excluded ranges have no frontends (S-108).
    pub fn is_stale(&self, desired: &Desired) -> bool {
        let frontend = VirtualServerKey {
            address: self.destination.ip(),
            port: self.destination.port(),
            protocol: Protocol::Udp,
        };
        let backend = RealServerKey {
            address: self.reply_source.ip(),
            port: self.reply_source.port(),
        };
        let backends = desired.virtual_servers.get(&frontend);
        backends
            .map(|server| &server.real_servers)
            .is_some_and(|backends| !backends.is_empty() && !backends.contains_key(&backend))
    }
}

/// The families in which flows can be stale at all: those of UDP frontends with backends.
pub fn families_with_flows(desired: &Desired) -> BTreeSet<Family> {
    let servers = desired.virtual_servers.iter();
    let with_backends = servers.filter(|(_, server)| !server.real_servers.is_empty());
    with_backends
        .map(|(key, _)| key)
        .filter(is_udp)
        .map(|key| Family::of(key.address))
        .collect()
}

/// The family in which this operation, once done, may have left stale flows behind (S-128, S-129).
///
/// Backends that come matter as those that go: flows from before the first one were not translated.
/// So does a policy rule: without it nobody translated what came from elsewhere.
pub fn leaves_stale_flows(op: &Op, desired: &Desired) -> Option<Family> {
    match op {
        Op::Ipvs(
            IpvsOp::AddRealServer { server, .. }
            | IpvsOp::EditRealServer { server, .. }
            | IpvsOp::DeleteRealServer { server, .. },
        ) => is_udp(&server).then(|| Family::of(server.address)),
        Op::Link(LinkOp::AddPolicyRule { rule }) => {
            let mut servers = desired.virtual_servers.keys();
            let of_family = |key: &&VirtualServerKey| Family::of(key.address) == rule.family;
            servers
                .any(|key| of_family(&key) && is_udp(&key))
                .then_some(rule.family)
        }
        _ => None,
    }
}

fn is_udp(server: &&VirtualServerKey) -> bool {
    server.protocol == Protocol::Udp
}
