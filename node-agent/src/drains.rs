//! The page `/drains` with all draining real servers, their reasons and deadlines, for `show`. Only the running
//! agent knows since when an endpoint is gone.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use portolan_plan::Protocol;
use portolan_reconcile::{RealServerKey, VirtualServerKey};
use serde::{Deserialize, Serialize};

/// A draining real server as the programmer tracks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drain {
    /// Its virtual server.
    pub server: VirtualServerKey,
    /// The real server.
    pub backend: RealServerKey,
    /// Whether the virtual server exists only for draining real servers.
    pub rests: bool,
    /// How long it may stay after its endpoint is gone.
    pub deadline: Duration,
    /// When its endpoint left the cluster; `None` while it exists.
    pub gone: Option<Instant>,
}

/// A draining real server in the JSON of `/drains`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedDrain {
    /// The protocol of the virtual and the real server.
    pub protocol: Protocol,
    /// The address of its virtual server.
    pub server_address: IpAddr,
    /// The port of its virtual server.
    pub server_port: u16,
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Why it drains.
    pub reason: Reason,
    /// Seconds since its endpoint left the cluster; `null` while it exists.
    pub gone_seconds: Option<u64>,
    /// Seconds until its connections are cut; `null` while its endpoint exists.
    pub deadline_seconds: Option<u64>,
}

/// Why a real server drains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// Its endpoint left the cluster.
    EndpointGone,
    /// None of the Service's endpoints accepts connections.
    NoneReady,
    /// It is not in the list for this virtual server: not ready, or assigned to other nodes.
    NotInList,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EndpointGone => "its endpoint left the cluster",
            Self::NoneReady => "no endpoint is ready",
            Self::NotInList => "not ready, or assigned to other nodes",
        })
    }
}

impl ListedDrain {
    /// The JSON entry at this moment.
    pub fn of(drain: &Drain, now: Instant) -> Self {
        let gone = drain.gone.map(|since| now.saturating_duration_since(since));
        let reason = match (gone, drain.rests) {
            (Some(_), _) => Reason::EndpointGone,
            (None, true) => Reason::NoneReady,
            (None, false) => Reason::NotInList,
        };
        Self {
            protocol: drain.server.protocol,
            server_address: drain.server.address,
            server_port: drain.server.port,
            address: drain.backend.address,
            port: drain.backend.port,
            reason,
            gone_seconds: gone.map(|gone| gone.as_secs()),
            deadline_seconds: gone.map(|gone| drain.deadline.saturating_sub(gone).as_secs()),
        }
    }

    /// The virtual and the real server.
    pub fn key(&self) -> (VirtualServerKey, RealServerKey) {
        let server = VirtualServerKey {
            address: self.server_address,
            port: self.server_port,
            protocol: self.protocol,
        };
        let backend = RealServerKey {
            address: self.address,
            port: self.port,
        };
        (server, backend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_runs_from_when_the_endpoint_left_and_not_before() {
        let start = Instant::now();
        let mut drain = Drain {
            server: "TCP 10.96.0.20:80".parse().unwrap(),
            backend: RealServerKey {
                address: "10.244.1.5".parse().unwrap(),
                port: 8080,
            },
            rests: false,
            deadline: Duration::from_secs(60),
            gone: None,
        };
        let list = |drain: &Drain, seconds| {
            let entry = ListedDrain::of(drain, start + Duration::from_secs(seconds));
            assert_eq!(entry.key(), (drain.server, drain.backend));
            (entry.reason, entry.gone_seconds, entry.deadline_seconds)
        };
        assert_eq!(list(&drain, 500), (Reason::NotInList, None, None), "S-113");
        drain.rests = true;
        assert_eq!(list(&drain, 500), (Reason::NoneReady, None, None));
        drain.gone = Some(start);
        let gone = |ago, left| (Reason::EndpointGone, Some(ago), Some(left));
        assert_eq!(list(&drain, 12), gone(12, 48), "S-115");
        assert_eq!(list(&drain, 90), gone(90, 0));
    }
}
