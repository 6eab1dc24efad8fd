//! Which clients may connect to an address of a load balancer (`loadBalancerSourceRanges`).

use std::net::IpAddr;

use ipnet::IpNet;
use portolan_plan::{Family, LocalDetection, NodeEntry};

use crate::host::HostNetwork;

/// The only ranges that may connect to this address (S-86); `None` for all clients.
///
/// A range of everything is no restriction (S-87). If only the other family has ranges, the address is closed (S-88).
/// A node that has the address itself, and any other address in the ranges, connects from the address to which it
/// connects (S-90, S-223).
pub(super) fn allowed(
    address: IpAddr,
    sources: &[IpNet],
    node: &NodeEntry,
    host: &HostNetwork,
) -> Option<Vec<IpNet>> {
    let of_family = |range: &&IpNet| Family::of(range.addr()) == Family::of(address);
    let own = sources.iter().filter(of_family);
    if sources.is_empty() || own.clone().any(|range| range.prefix_len() == 0) {
        return None;
    }
    let of_node = || host.addresses.iter().map(|host| host.address);
    let is_in = |range: &IpNet| of_node().any(|address| range.contains(&address));
    let itself = host.owns(address) && own.clone().any(is_in);
    let itself = itself.then(|| IpNet::from(address));
    let inside = always_allowed(address, node);
    let inside = inside.iter().filter(of_family);
    let all = own.chain(inside).copied().chain(itself);
    Some(all.map(|range| range.trunc()).collect())
}

/// The ranges that may connect to a load balancer's address regardless of its source ranges: the node and its pods,
/// if the address is also a cluster IP, that is, if it is in a service range.
fn always_allowed(address: IpAddr, node: &NodeEntry) -> Vec<IpNet> {
    let mut ranges = node.service_cidrs.iter();
    if !ranges.any(|range| range.contains(&address)) {
        return Vec::new();
    }
    // The route to the service range selects one of these as the source address of the node's own connections.
    let own = node.addresses.iter().copied().map(IpNet::from);
    let pods = match &node.settings.local_detection {
        LocalDetection::ClusterCidr { cluster_cidrs } => cluster_cidrs,
        _ => &node.pod_cidrs,
    };
    own.chain(pods.iter().copied()).collect()
}
