//! Virtual and real servers, the same type for desired and observed, so that comparing them is
//! plain equality.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use portolan_plan::Protocol;
use thiserror::Error;
use xxhash_rust::xxh3;

use crate::RealServers;

/// Flags of a virtual server, as the kernel numbers them.
pub mod flags {
    /// Connections of one client go to one backend (S-95).
    pub const PERSISTENT: u32 = 0x1;
    /// The scheduler `mh` hashes the port too (S-102).
    pub const MH_PORT: u32 = 0x10;
}

/// What a virtual server is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VirtualServerKey {
    /// The address it answers on.
    pub address: IpAddr,
    /// The port it answers on.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
}

/// `TCP 10.96.0.1:443`
impl fmt::Display for VirtualServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}",
            self.protocol,
            SocketAddr::new(self.address, self.port)
        )
    }
}

/// A text that is no virtual server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is no virtual server; expected something like TCP 10.96.0.1:443")]
pub struct ServerError {
    /// The text as it came.
    pub text: String,
}

impl FromStr for VirtualServerKey {
    type Err = ServerError;

    fn from_str(text: &str) -> Result<Self, ServerError> {
        let error = || ServerError { text: text.into() };
        let (protocol, socket) = text.split_once(' ').ok_or_else(error)?;
        let protocols = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
        let protocol = protocols
            .into_iter()
            .find(|p| p.as_str() == protocol)
            .ok_or_else(error)?;
        let socket: SocketAddr = socket.parse().map_err(|_| error())?;
        Ok(Self {
            address: socket.ip(),
            port: socket.port(),
            protocol,
        })
    }
}

/// What a real server is known by, within its virtual server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RealServerKey {
    /// The backend's address.
    pub address: IpAddr,
    /// The backend's port.
    pub port: u16,
}

impl RealServerKey {
    /// Where the backend stands in its virtual server on this node.
    ///
    /// `rr` starts at the server added last. Were the order the same everywhere, all nodes would
    /// start at the same pod after a restart (S-103); hashed with the node's name it differs, and
    /// a new backend moves no other.
    pub fn rank(&self, node: &str, server: &VirtualServerKey) -> u64 {
        let seed = xxh3::xxh3_64(node.as_bytes());
        let seed = xxh3::xxh3_64_with_seed(server.protocol.as_str().as_bytes(), seed);
        let seed = hash(server.address, server.port, seed);
        hash(self.address, self.port, seed)
    }
}

fn hash(address: IpAddr, port: u16, seed: u64) -> u64 {
    let seed = seed ^ u64::from(port);
    match address {
        IpAddr::V4(v4) => xxh3::xxh3_64_with_seed(&v4.octets(), seed),
        IpAddr::V6(v6) => xxh3::xxh3_64_with_seed(&v6.octets(), seed),
    }
}

impl fmt::Display for RealServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, self.port).fmt(f)
    }
}

/// How a virtual server spreads new connections: all of it but its real servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduling {
    /// The scheduler's name.
    pub scheduler: Arc<str>,
    /// See [`flags`].
    pub flags: u32,
    /// How long a client stays with its backend, in seconds; 0 without [`flags::PERSISTENT`].
    pub timeout: u32,
}

impl Scheduling {
    /// A virtual server that spreads them so over these.
    pub fn over(self, real_servers: RealServers) -> VirtualServer {
        let Self {
            scheduler,
            flags,
            timeout,
        } = self;
        VirtualServer {
            scheduler,
            flags,
            timeout,
            real_servers,
        }
    }
}

/// A virtual server and its real servers. All forward by masquerading, the only way in which the
/// two ports may differ (S-100).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualServer {
    /// The scheduler's name.
    pub scheduler: Arc<str>,
    /// See [`flags`].
    pub flags: u32,
    /// How long a client stays with its backend, in seconds; 0 without [`flags::PERSISTENT`].
    pub timeout: u32,
    /// Weights by backend.
    pub real_servers: RealServers,
}

impl VirtualServer {
    /// Uses the memory of `with` for the parts that are equal to its own.
    pub fn share(&mut self, with: &Self) {
        if self.scheduler == with.scheduler {
            self.scheduler = with.scheduler.clone();
        }
        self.real_servers.share(&with.real_servers);
    }
}

impl VirtualServer {
    /// All of it but its real servers.
    pub fn scheduling(&self) -> Scheduling {
        Scheduling {
            scheduler: self.scheduler.clone(),
            flags: self.flags,
            timeout: self.timeout,
        }
    }

    /// Whether only the real servers differ.
    pub fn same_service(&self, other: &Self) -> bool {
        (&self.scheduler, self.flags, self.timeout)
            == (&other.scheduler, other.flags, other.timeout)
    }
}
