//! What drains, why, and for how much longer: the page `/drains`, which `show` reads. Only the agent
//! that runs knows since when an endpoint is gone.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use portolan_plan::Protocol;
use portolan_reconcile::{RealServerKey, VirtualServerKey};
use serde::{Deserialize, Serialize};

/// A real server that drains, as the programmer knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drain {
    /// Its virtual server.
    pub server: VirtualServerKey,
    /// Which it is.
    pub backend: RealServerKey,
    /// Whether the virtual server is there for those that drain alone.
    pub rests: bool,
    /// How long it may stay once its endpoint is gone.
    pub deadline: Duration,
    /// Since when the cluster has no such endpoint any more; `None` while it has.
    pub gone: Option<Instant>,
}

/// A real server that drains, as tools read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToldDrain {
    /// The protocol of both.
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
    /// Since how many seconds its endpoint is gone; `null` while it is there.
    pub gone_seconds: Option<u64>,
    /// In how many seconds its connections end; `null` while its endpoint exists.
    pub deadline_seconds: Option<u64>,
}

/// Why a real server drains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// No endpoint has its address any more.
    EndpointGone,
    /// None of the Service's endpoints takes connections.
    NoneReady,
    /// It is not in the list that serves this virtual server: not ready, or meant for other nodes.
    NotInList,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EndpointGone => "its endpoint left the cluster",
            Self::NoneReady => "no endpoint is ready",
            Self::NotInList => "not ready, or meant for other nodes",
        })
    }
}

impl ToldDrain {
    /// What is told of one at a moment.
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

    /// Which it is.
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
        let told = |drain: &Drain, seconds| {
            let told = ToldDrain::of(drain, start + Duration::from_secs(seconds));
            assert_eq!(told.key(), (drain.server, drain.backend));
            (told.reason, told.gone_seconds, told.deadline_seconds)
        };
        assert_eq!(told(&drain, 500), (Reason::NotInList, None, None), "S-113");
        drain.rests = true;
        assert_eq!(told(&drain, 500), (Reason::NoneReady, None, None));
        drain.gone = Some(start);
        let gone = |ago, left| (Reason::EndpointGone, Some(ago), Some(left));
        assert_eq!(told(&drain, 12), gone(12, 48), "S-115");
        assert_eq!(told(&drain, 90), gone(90, 0));
    }
}
