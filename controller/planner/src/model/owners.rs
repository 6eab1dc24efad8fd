//! Addresses of nodes and pod ranges. No Service may take them from their owners.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::Node;
use super::kept::Changed;
use crate::reverse::Reverse;

/// The owners of addresses.
#[derive(Debug, Default)]
pub(super) struct Owners {
    nodes: Reverse<IpAddr, Arc<str>>,
    pods: Reverse<IpNet, Arc<str>>,
}

impl Owners {
    /// Applies a change of a Node.
    pub(super) fn follow(&mut self, changed: &Changed<Node>) {
        for node in changed.before.iter() {
            for address in &node.addresses {
                self.nodes.remove(address, &node.name);
            }
            for range in &node.pod_cidrs {
                self.pods.remove(range, &node.name);
            }
        }
        for node in changed.after.iter() {
            for address in &node.addresses {
                self.nodes.insert(*address, node.name.clone());
            }
            for range in &node.pod_cidrs {
                self.pods.insert(*range, node.name.clone());
            }
        }
    }

    /// The nodes with this address, in order; nearly always one or none.
    pub(super) fn nodes_at(&self, address: IpAddr) -> impl Iterator<Item = &Arc<str>> {
        self.nodes.get(&address)
    }

    /// The narrowest pod range that contains the address, and the first node with it.
    pub(super) fn pod_range(&self, address: IpAddr) -> Option<(IpNet, &Arc<str>)> {
        let longest = if address.is_ipv4() { 32 } else { 128 };
        (0..=longest).rev().find_map(|length| {
            let range = IpNet::new(address, length).ok()?.trunc();
            Some((range, self.pods.get(&range).next()?))
        })
    }
}
