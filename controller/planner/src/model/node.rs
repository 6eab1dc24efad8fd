//! Nodes, and the ranges that cluster IPs come from.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::Object;
use crate::Reason;

/// A Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// Its zone, by its label; a label without a value is none (S-60, S-62).
    pub zone: Option<Arc<str>>,
    /// Its labels: settings may be for some nodes only.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Its addresses in its own order.
    pub addresses: Vec<IpAddr>,
    /// The ranges of its pods.
    pub pod_cidrs: Vec<IpNet>,
    /// Its kubelet says that it is well. Endpoints that vanish elsewhere vanish for that.
    pub ready: bool,
    /// Somebody deletes it.
    pub deleted: bool,
    /// The cluster's autoscaler is about to delete it (S-149).
    pub scaled_away: bool,
    /// What was ignored when it was read.
    pub ignored: Vec<Reason>,
}

impl Object for Node {
    type Id = Arc<str>;

    fn id(&self) -> Arc<str> {
        self.name.clone()
    }
}

/// A ServiceCIDR object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceCidr {
    /// Its name.
    pub name: Arc<str>,
    /// The ranges, at most one of each family.
    pub cidrs: Vec<IpNet>,
}

impl Object for ServiceCidr {
    type Id = Arc<str>;

    fn id(&self) -> Arc<str> {
        self.name.clone()
    }
}
