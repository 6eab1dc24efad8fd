//! Endpoints whose addresses are outside the pod ranges by which their node recognizes its pods. Either the ranges or
//! the detection mode (`spec.settings.localDetection`) are wrong, and the node treats its pods as external clients.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::{Family, NodeEntry};

use crate::Warning;
use crate::model::{Endpoint, EndpointSlice, NodeOutsideRanges, Reason, SliceId};
use crate::node::pod_ranges;

/// The result of comparing endpoints with the ranges of their nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutsideRanges {
    checked: usize,
    nodes: BTreeMap<Arc<str>, NodeOutsideRanges>,
}

impl OutsideRanges {
    /// Compares the endpoints of slices, in order. These are skipped: endpoints without `nodeName` or on unknown
    /// nodes; nodes that recognize pods by interfaces or have no range in the family (S-70); and addresses of nodes,
    /// which pods in the host network have.
    pub fn among<'a>(
        nodes: &BTreeMap<Arc<str>, Arc<NodeEntry>>,
        slices: impl Iterator<Item = &'a Arc<EndpointSlice>>,
    ) -> Self {
        let own: BTreeSet<IpAddr> = nodes.values().flat_map(|n| &n.addresses).copied().collect();
        let mut found: BTreeMap<&Arc<str>, NodeCounts<'_>> = BTreeMap::new();
        for slice in slices {
            for endpoint in &slice.endpoints {
                let Some(node) = endpoint.node.as_ref().and_then(|name| nodes.get(name)) else {
                    continue;
                };
                if !own.contains(&endpoint.address) {
                    let counts = found.entry(&node.name);
                    let counts = counts.or_insert_with(|| NodeCounts::new(node));
                    counts.compare(endpoint, slice);
                }
            }
        }
        Self {
            checked: found.values().map(|counts| counts.checked).sum(),
            nodes: found
                .into_iter()
                .filter_map(|(name, counts)| Some((name.clone(), counts.outside_ranges()?)))
                .collect(),
        }
    }

    /// Number of compared endpoints.
    pub fn checked(&self) -> usize {
        self.checked
    }

    /// Nodes with endpoints outside of their ranges, in order.
    pub fn nodes(&self) -> &BTreeMap<Arc<str>, NodeOutsideRanges> {
        &self.nodes
    }

    /// The warning for a node.
    pub fn warning(&self, node: &Arc<str>) -> Option<Warning> {
        let outside_ranges = self.nodes.get(node)?.clone();
        Some(Warning::new(
            "Node",
            node,
            Reason::PodsOutside(outside_ranges),
        ))
    }
}

/// The counts of one node.
struct NodeCounts<'a> {
    /// `None` if the node does not recognize pods by addresses.
    ranges: Option<&'a [IpNet]>,
    checked: usize,
    outside: usize,
    first: Option<(IpAddr, SliceId)>,
}

impl<'a> NodeCounts<'a> {
    fn new(node: &'a NodeEntry) -> Self {
        Self {
            ranges: pod_ranges(&node.settings, &node.pod_cidrs),
            checked: 0,
            outside: 0,
            first: None,
        }
    }

    fn compare(&mut self, endpoint: &Endpoint, slice: &EndpointSlice) {
        let address = endpoint.address;
        let family = Family::of(address);
        let ranges = self.ranges.unwrap_or_default().iter();
        let mut ranges = ranges.filter(|range| Family::of(range.addr()) == family);
        let Some(first) = ranges.next() else {
            return;
        };
        self.checked += 1;
        if !first.contains(&address) && !ranges.any(|range| range.contains(&address)) {
            self.outside += 1;
            let place = || (address, slice.id.clone());
            self.first.get_or_insert_with(place);
        }
    }

    fn outside_ranges(self) -> Option<NodeOutsideRanges> {
        let (first, slice) = self.first?;
        Some(NodeOutsideRanges {
            checked: self.checked,
            outside: self.outside,
            first,
            slice,
            ranges: self.ranges.unwrap_or_default().to_vec(),
        })
    }
}
