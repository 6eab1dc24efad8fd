//! How long draining real servers may keep their connections (section K).

use std::collections::BTreeMap;
use std::time::Duration;

use portolan_plan::Protocol;

use crate::VirtualServerKey;

/// How long a real server may keep its connections after its endpoint left the cluster. As long as the endpoint
/// exists, its connections are healthy and have no deadline, even if this node no longer uses it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainDeadlines {
    /// The deadline of all other virtual servers.
    pub default: Duration,
    /// The deadlines of virtual servers whose Service defines one.
    pub of: BTreeMap<VirtualServerKey, Duration>,
}

impl DrainDeadlines {
    /// The deadline of a virtual server's real servers.
    pub fn of(&self, server: &VirtualServerKey) -> Duration {
        self.of.get(server).copied().unwrap_or(self.default)
    }
}

/// How long a UDP backend keeps its flows after it has left its frontend: it still answers the requests that it has, and
/// clients that keep their port move to another backend afterwards (S-116).
pub const UDP_GRACE: Duration = Duration::from_secs(1);

/// Whether real servers of a protocol drain. For other protocols, the kernel drops the connection of a removed real
/// server with the next packet and schedules the client to another one (S-116).
pub(crate) fn drains(protocol: Protocol) -> bool {
    match protocol {
        Protocol::Tcp | Protocol::Udp => true,
        Protocol::Sctp => false,
    }
}

/// Whether connections of a protocol go on until they end, even if their virtual server has no other backend.
pub(crate) fn lasts(protocol: Protocol) -> bool {
    protocol == Protocol::Tcp
}
