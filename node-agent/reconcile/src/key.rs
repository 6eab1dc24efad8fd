//! The identities of virtual and real servers.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use portolan_plan::Protocol;
use thiserror::Error;
use xxhash_rust::xxh3;

/// The identity of a virtual server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VirtualServerKey {
    /// The address of the frontend.
    pub address: IpAddr,
    /// The port of the frontend.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
}

/// Formats as `TCP 10.96.0.1:443`.
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

/// The text is not a virtual server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not a virtual server; expected a form like TCP 10.96.0.1:443")]
pub struct ServerError {
    /// The text as received.
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

/// The identity of a real server within its virtual server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RealServerKey {
    /// The backend's address.
    pub address: IpAddr,
    /// The backend's port.
    pub port: u16,
}

impl RealServerKey {
    /// The rank of the backend in its virtual server on this node.
    ///
    /// `rr` starts at the server added last. With the same order everywhere, all nodes would start at the same pod
    /// after a restart (S-103). Hashing the node's name makes the order differ, and a new backend does not move the
    /// others.
    pub fn rank(&self, order: BackendOrder) -> u64 {
        hash(self.address, self.port, order.0)
    }
}

/// The order of backends of one virtual server on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackendOrder(u64);

impl BackendOrder {
    /// The order on the node with this name.
    pub fn of(node: &str, server: &VirtualServerKey) -> Self {
        let seed = xxh3::xxh3_64(node.as_bytes());
        let seed = xxh3::xxh3_64_with_seed(server.protocol.as_str().as_bytes(), seed);
        Self(hash(server.address, server.port, seed))
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
