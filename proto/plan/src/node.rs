//! What a node is.

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
    /// The ranges its pods have their addresses from.
    pub pod_cidrs: Vec<IpNet>,
    /// The ranges cluster IPs are allocated from.
    pub service_cidrs: Vec<IpNet>,
    /// Whether balancers should send traffic here: not being deleted, by the cluster's
    /// autoscaler neither (S-149).
    pub eligible: bool,
    /// The settings in force.
    pub settings: Settings,
}

impl NodeEntry {
    /// The scope that a head means on this node. A node without a zone has no list of its zone:
    /// it uses the cluster's (S-60).
    pub fn complete(&self, scope: ScopeKind) -> Scope {
        match (scope, &self.zone) {
            (ScopeKind::Node, _) => Scope::Node(self.name.clone()),
            (ScopeKind::Local, _) => Scope::Local(self.name.clone()),
            (ScopeKind::Zone, Some(zone)) => Scope::Zone(zone.clone()),
            (ScopeKind::Zone, None) | (ScopeKind::Cluster, _) => Scope::Cluster,
        }
    }
}
