//! The node entry of a plan.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::key::Scope;
use crate::{ScopeKind, Settings};

/// The node itself, and the settings in force on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeEntry {
    /// Its name.
    pub name: Arc<str>,
    /// Its zone, if it is labelled with one.
    pub zone: Option<Arc<str>>,
    /// Its addresses in the order of the Node object; the first of each family is its primary.
    pub addresses: Vec<IpAddr>,
    /// The ranges of its pods' addresses (`spec.podCIDRs`).
    pub pod_cidrs: Vec<IpNet>,
    /// The ranges from which cluster IPs are allocated.
    pub service_cidrs: Vec<IpNet>,
    /// Whether load balancers should send traffic here: the node is not being deleted, nor about to be removed by the
    /// cluster autoscaler (S-149).
    pub eligible: bool,
    /// The settings in force.
    pub settings: Settings,
}

impl NodeEntry {
    /// The scope of a head's list on this node. A node without a zone has no zone list and uses the cluster's (S-60).
    pub fn complete(&self, scope: ScopeKind) -> Scope {
        match (scope, &self.zone) {
            (ScopeKind::Node, _) => Scope::Node(self.name.clone()),
            (ScopeKind::Local, _) => Scope::Local(self.name.clone()),
            (ScopeKind::Zone, Some(zone)) => Scope::Zone(zone.clone()),
            (ScopeKind::Zone, None) | (ScopeKind::Cluster, _) => Scope::Cluster,
        }
    }
}
