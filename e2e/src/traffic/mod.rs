//! Traffic: servers that answer with their name and the client's address, and clients that make one
//! attempt with a deadline and return exactly how it ended.

mod association;
pub mod client;
pub mod http;
pub(crate) mod line;
pub mod load;
mod port;
pub mod relay;
pub mod sender;
pub mod server;

use serde::Deserialize;

/// A transport protocol, spelled as in Kubernetes, and the echo of ICMP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// Transmission Control Protocol.
    Tcp,
    /// User Datagram Protocol.
    Udp,
    /// Stream Control Transmission Protocol.
    Sctp,
    /// Echo requests: no Service speaks it, clients only.
    Icmp,
}

impl Protocol {
    /// Whether programs of this machine speak it: some kernels have no SCTP.
    #[must_use]
    pub fn is_spoken_here(self) -> bool {
        self != Self::Sctp || association::kernel_has_sctp()
    }
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
            Self::Icmp => "ICMP",
        })
    }
}
