//! Decides which UDP flows in conntrack are stale: those that no longer lead to a backend of their frontend (S-123 to
//! S-132). `programmer::flows` deletes them.
//!
//! A flow keeps the translation of its first packet for as long as its client sends. A flow whose backend was
//! removed, or that is older than its frontend, would never reach an existing backend.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use portolan_plan::{Family, Protocol};

use crate::drain::Draining;
use crate::{Desired, IpvsOp, LinkOp, Op, RealServerKey, VirtualServerKey};

/// A UDP flow in connection tracking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// The sender of its first datagram.
    pub source: SocketAddr,
    /// The destination, before any translation.
    pub destination: SocketAddr,
    /// The expected sender of replies: the backend, or the destination itself if the flow was not translated.
    pub reply_source: SocketAddr,
    /// The conntrack zone of the first datagram; 0 unless zones are configured.
    pub zone: u16,
    /// The kernel's id, which distinguishes it from a later flow of the same client.
    pub id: Option<u32>,
    /// Whether rules translated its destination (`IPS_DST_NAT`). IPVS does that without rules.
    pub by_rules: bool,
}

impl Flow {
    /// Its family.
    pub fn family(&self) -> Family {
        Family::of(self.destination.ip())
    }

    /// Whether it goes to a UDP frontend that has backends, but to none of them (S-124, S-125), including flows that
    /// were not translated at all (S-126). Flows to a draining backend are not stale yet (S-116).
    ///
    /// No flow is stale at a frontend without backends, or an outage would end all flows (S-127). Nor at an address
    /// that is not a frontend: node ports are expanded to the node's own addresses before (S-131), and excluded
    /// ranges have no frontends (S-108).
    pub fn is_stale(&self, desired: &Desired, draining: &Draining) -> bool {
        let frontend = VirtualServerKey {
            address: self.destination.ip(),
            port: self.destination.port(),
            protocol: Protocol::Udp,
        };
        let backend = RealServerKey {
            address: self.reply_source.ip(),
            port: self.reply_source.port(),
        };
        let drains = draining.get(&frontend);
        if drains.is_some_and(|drains| drains.backends.contains(&backend)) {
            return false;
        }
        let backends = desired.virtual_servers.get(&frontend);
        backends
            .map(|server| &server.real_servers)
            .is_some_and(|backends| !backends.is_empty() && !backends.contains_key(&backend))
    }
}

/// The families that can have stale flows: those of UDP frontends with backends.
pub fn families_with_flows(desired: &Desired) -> BTreeSet<Family> {
    let servers = desired.virtual_servers.iter();
    let with_backends = servers.filter(|(_, server)| !server.real_servers.is_empty());
    with_backends
        .map(|(key, _)| key)
        .filter(is_udp)
        .map(|key| Family::of(key.address))
        .collect()
}

/// The family in which this operation may leave stale flows behind (S-128, S-129).
///
/// Added backends matter as much as removed ones, because flows from before the first backend were not translated.
/// Policy rules matter too, because without them packets from other hosts were not translated.
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
