//! The closed vocabularies of a plan, spelled as Kubernetes spells them.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// An IP family. A Service of both families is planned once for each (S-7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    #[serde(rename = "IPv4")]
    Ipv4,
    /// IPv6.
    #[serde(rename = "IPv6")]
    Ipv6,
}

impl Family {
    /// Both families, IPv4 first.
    pub const BOTH: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::Ipv4
        } else {
            Self::Ipv6
        }
    }

    /// `IPv4` or `IPv6`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A transport protocol that a Service port may name.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP, what Kubernetes assumes where nothing is said.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// `TCP`, `UDP` or `SCTP`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A traffic policy of a Service.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Policy {
    /// Endpoints anywhere in the cluster serve.
    #[default]
    Cluster,
    /// Only endpoints of the node that took the packet serve.
    Local,
}

/// What clients meet when a list has no backend.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum WhenEmpty {
    /// The connection is refused at once (S-21, S-23).
    #[default]
    Reject,
}

/// What happens to clients that are neither the node itself nor one of its pods.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Outsiders {
    /// They are served like everybody.
    #[default]
    Allow,
    /// Their new connections meet silence, so that a balancer tries another node (S-22).
    Drop,
}
