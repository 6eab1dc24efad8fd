//! The four kinds of entries.

use std::net::IpAddr;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::{BackendList, Head, NodeEntry, Protocol};

/// An entry of a plan. The values are shared between all plans that contain them.
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

/// Local endpoints of one Service. There is nearly always only one, which needs no heap allocation.
pub type LocalEndpoints = SmallVec<[LocalEndpoint; 1]>;

/// This node's own endpoints of a Service. The kernel needs them for connections of a pod to itself (S-74), load
/// balancers for their health checks (S-134).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Local {
    /// All of this node's endpoints, ready or not, in ascending order.
    pub endpoints: LocalEndpoints,
    /// The health check port (`healthCheckNodePort`), if the Service has one.
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

/// The health check port of a Service and the counts that it reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LocalHealth {
    /// `healthCheckNodePort`, 1 to 65535.
    pub port: u16,
    /// The number of distinct addresses of ready IPv4 endpoints on this node (S-136).
    pub ipv4: u32,
    /// The same for IPv6.
    pub ipv6: u32,
}
