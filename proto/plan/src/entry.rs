//! The four kinds of entries.

use std::net::IpAddr;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::{BackendList, Head, NodeEntry, Protocol};

/// An entry of a plan, shared by everybody who holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// The node itself.
    Node(Arc<NodeEntry>),
    /// A Service.
    Head(Arc<Head>),
    /// Backends.
    List(Arc<BackendList>),
    /// This node's endpoints of a Service.
    Local(Arc<Local>),
}

/// Nearly always one, which needs no memory of its own.
pub type LocalEndpoints = SmallVec<[LocalEndpoint; 1]>;

/// This node's own endpoints of a Service: the kernel needs them for connections of a pod to
/// itself (S-74), balancers for their health checks (S-134).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Local {
    /// All of this node's endpoints, ready or not, in ascending order.
    pub endpoints: LocalEndpoints,
    /// The health check port, for Services that have one.
    pub health: Option<LocalHealth>,
}

/// An endpoint on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalEndpoint {
    /// Its address.
    pub address: IpAddr,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its port, 1 to 65535.
    pub port: u16,
}

/// What a Service's health check port answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LocalHealth {
    /// `healthCheckNodePort`, 1 to 65535.
    pub port: u16,
    /// Distinct addresses of ready IPv4 endpoints on this node (S-136).
    pub ipv4: u32,
    /// The same for IPv6.
    pub ipv6: u32,
}
