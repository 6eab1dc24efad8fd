//! Nodes, and cluster IP ranges.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::ClusterObject;
use super::Reason;

/// A Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// Its zone, from its label; an empty value means none (S-60, S-62).
    pub zone: Option<Arc<str>>,
    /// Its labels, which overrides of settings select.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Its addresses, in the order of the object.
    pub addresses: Vec<IpAddr>,
    /// Its pod ranges.
    pub pod_cidrs: Vec<IpNet>,
    /// The condition Ready is True. The guard ignores endpoints that vanish from other nodes.
    pub ready: bool,
    /// It has a deletion timestamp.
    pub deleted: bool,
    /// The cluster autoscaler is about to delete it (S-149).
    pub scaled_away: bool,
    /// Fields that were ignored when it was read.
    pub ignored: Vec<Reason>,
}

impl ClusterObject for Node {
    type Id = Arc<str>;

    fn id(&self) -> Arc<str> {
        self.name.clone()
    }

    fn id_of(_: &str, name: &str) -> Arc<str> {
        name.into()
    }

    fn ignored(&self) -> &[Reason] {
        &self.ignored
    }

    fn ignored_mut(&mut self) -> Option<&mut Vec<Reason>> {
        Some(&mut self.ignored)
    }
}

/// A ServiceCIDR object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceCidr {
    /// Its name.
    pub name: Arc<str>,
    /// The CIDR ranges, at most one of each family.
    pub cidrs: Vec<IpNet>,
}

impl ClusterObject for ServiceCidr {
    type Id = Arc<str>;

    fn id(&self) -> Arc<str> {
        self.name.clone()
    }

    fn id_of(_: &str, name: &str) -> Arc<str> {
        name.into()
    }
}
