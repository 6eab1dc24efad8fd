//! What a node is told about itself.

use portolan_plan::NodeEntry;

use crate::Warning;
use crate::model::{ClusterModel, Node};

/// The entry of a node.
pub(crate) fn node_entry(model: &ClusterModel, node: &Node) -> NodeEntry {
    NodeEntry {
        name: node.name.clone(),
        zone: node.zone.clone(),
        addresses: node.addresses.clone(),
        pod_cidrs: node.pod_cidrs.clone(),
        service_cidrs: model.service_cidrs(),
        eligible: !node.deleted && !node.scaled_away,
        settings: model.settings(),
    }
}

/// What its owner should hear.
pub(crate) fn node_warnings(node: &Node) -> impl Iterator<Item = Warning> {
    node.ignored
        .iter()
        .map(|reason| Warning::new("Node", &node.name, reason.clone()))
}
