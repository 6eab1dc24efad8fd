//! The plan entry of a node, and warnings about the node.

use std::collections::BTreeSet;

use ipnet::IpNet;
use portolan_plan::{Family, LocalDetection, NodeEntry, Settings};

use crate::model::{ClusterModel, Node};
use crate::{Reason, Warning};

/// The plan entry of a node.
pub(crate) fn node_entry(model: &ClusterModel, node: &Node) -> NodeEntry {
    NodeEntry {
        name: node.name.clone(),
        zone: node.zone.clone(),
        addresses: node.addresses.clone(),
        pod_cidrs: node.pod_cidrs.clone(),
        service_cidrs: model.service_cidrs(),
        eligible: !node.deleted && !node.scaled_away,
        settings: model.settings_of(node),
    }
}

/// Labels with the operating system of a node, the current one and its predecessor. kubelets set them.
const OS_LABELS: [&str; 2] = ["kubernetes.io/os", "beta.kubernetes.io/os"];

/// Whether an agent can run on the node. A node with another operating system than Linux has no plan, and nothing
/// waits for it (S-233).
pub(crate) fn can_have_agent(node: &Node) -> bool {
    let labels = OS_LABELS.iter();
    let mut systems = labels.filter_map(|label| node.labels.get(*label));
    systems.next().is_none_or(|system| &**system == "linux")
}

/// Warnings about a node.
pub(crate) fn node_warnings(model: &ClusterModel, node: &Node) -> Vec<Warning> {
    let settings = model.settings_of(node);
    let ignored = node.ignored.iter().cloned();
    let own = node.addresses.iter().map(|address| Family::of(*address));
    let without_node_ports = without_node_ports(&settings, own);
    let served = model.service_cidrs();
    let served = served.iter().map(|range| Family::of(range.addr()));
    let without_pods = without_pods(&settings, &node.pod_cidrs, served);
    let reasons = ignored.chain(without_node_ports).chain(without_pods);
    reasons
        .map(|reason| Warning::new("Node", &node.name, reason))
        .collect()
}

/// Families in which the ranges of `nodePortAddresses` select no address of the node (S-33).
fn without_node_ports(
    settings: &Settings,
    families: impl Iterator<Item = Family>,
) -> impl Iterator<Item = Reason> {
    let ranges: Vec<IpNet> = settings
        .node_port_addresses
        .iter()
        .filter_map(|text| text.parse().ok())
        .collect();
    // With a keyword that selects addresses, ranges only add more.
    let mut words = settings.node_port_addresses.iter();
    let limits = !ranges.is_empty() && !words.any(|word| word == "all" || word == "primary");
    let has = move |family| {
        ranges
            .iter()
            .any(|range| Family::of(range.addr()) == family)
    };
    let families: BTreeSet<Family> = families.filter(|_| limits).collect();
    families
        .into_iter()
        .filter(move |family| !has(*family))
        .map(|family| Reason::NoNodePortRange { family })
}

/// The ranges by which a node with these pod ranges recognizes its pods; `None` if it recognizes them by interfaces.
pub(crate) fn pod_ranges<'a>(settings: &'a Settings, own: &'a [IpNet]) -> Option<&'a [IpNet]> {
    match &settings.local_detection {
        LocalDetection::NodeCidr => Some(own),
        LocalDetection::ClusterCidr { cluster_cidrs } => Some(cluster_cidrs),
        LocalDetection::BridgeInterface { .. } | LocalDetection::InterfaceNamePrefix { .. } => None,
    }
}

/// Families of cluster IPs in which the node cannot recognize its pods (S-70).
fn without_pods(
    settings: &Settings,
    own: &[IpNet],
    families: impl Iterator<Item = Family>,
) -> Vec<Reason> {
    let Some(ranges) = pod_ranges(settings, own) else {
        return Vec::new();
    };
    let has = |family: &Family| {
        ranges
            .iter()
            .any(|range| Family::of(range.addr()) == *family)
    };
    let families: BTreeSet<Family> = families.filter(|family| !has(family)).collect();
    let reason = |family| Reason::NoPodRange { family };
    families.into_iter().map(reason).collect()
}
