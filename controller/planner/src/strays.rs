//! Endpoints that run on a node and have an address outside the ranges by which that node tells its
//! pods: either the ranges or the way of telling is wrong, and its pods are treated as strangers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::{Family, NodeEntry};

use crate::model::{Endpoint, EndpointSlice, SliceId};
use crate::node::pod_ranges;
use crate::{Planner, Reason, Warning};

/// What comparing endpoints with the ranges of their nodes showed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Strays {
    checked: usize,
    nodes: BTreeMap<Arc<str>, StraysOfNode>,
}

/// What it showed of a node of which some endpoint is outside.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StraysOfNode {
    /// How many endpoints were compared; a pod counts in each EndpointSlice that names it.
    pub checked: usize,
    /// How many of them are outside; at least one.
    pub outside: usize,
    /// The first of them, by the names of slices.
    pub first: IpAddr,
    /// Its slice.
    pub slice: SliceId,
    /// Where it should be.
    pub ranges: Vec<IpNet>,
}

impl Strays {
    /// Compares the endpoints of slices, in order. Left out is what nothing can be said about: endpoints
    /// without `nodeName` or of unknown nodes, nodes that tell pods by interfaces or have no range in the
    /// family (S-70), and addresses of nodes, which pods of the host's network have.
    pub fn among<'a>(
        nodes: &BTreeMap<Arc<str>, Arc<NodeEntry>>,
        slices: impl Iterator<Item = &'a Arc<EndpointSlice>>,
    ) -> Self {
        let own: BTreeSet<IpAddr> = nodes.values().flat_map(|n| &n.addresses).copied().collect();
        let mut told: BTreeMap<&Arc<str>, Told<'_>> = BTreeMap::new();
        for slice in slices {
            for endpoint in &slice.endpoints {
                let Some(node) = endpoint.node.as_ref().and_then(|name| nodes.get(name)) else {
                    continue;
                };
                if !own.contains(&endpoint.address) {
                    let told = told.entry(&node.name).or_insert_with(|| Told::by(node));
                    told.compare(endpoint, slice);
                }
            }
        }
        Self {
            checked: told.values().map(|told| told.checked).sum(),
            nodes: told
                .into_iter()
                .filter_map(|(name, told)| Some((name.clone(), told.strays()?)))
                .collect(),
        }
    }

    /// How many endpoints were compared.
    pub fn checked(&self) -> usize {
        self.checked
    }

    /// Nodes of which some endpoint is outside, in order.
    pub fn nodes(&self) -> &BTreeMap<Arc<str>, StraysOfNode> {
        &self.nodes
    }

    /// What the owner of a node should hear.
    pub fn warning(&self, node: &Arc<str>) -> Option<Warning> {
        let strays = self.nodes.get(node)?.clone();
        Some(Warning::new("Node", node, Reason::PodsOutside(strays)))
    }
}

impl fmt::Display for StraysOfNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            checked,
            outside,
            first,
            slice,
            ranges,
        } = self;
        let ranges: Vec<_> = ranges.iter().map(ToString::to_string).collect();
        write!(
            f,
            "{outside} of {checked} endpoints that run there are outside its ranges of pods, {}, like {first} \
             of EndpointSlice {slice}: the node takes such pods for strangers, and masquerades them at \
             cluster IPs; check its spec.podCIDRs, or spec.settings.localDetection of the ProxyConfig \
             if the network gives addresses otherwise",
            ranges.join(" and ")
        )
    }
}

impl Planner {
    /// Endpoints outside the ranges of their nodes. Looks at every endpoint.
    pub fn strays(&self) -> Strays {
        Strays::among(self.nodes(), self.model().slices())
    }
}

/// What is told of a node so far.
struct Told<'a> {
    /// `None` where it tells pods by something else than addresses.
    ranges: Option<&'a [IpNet]>,
    checked: usize,
    outside: usize,
    first: Option<(IpAddr, SliceId)>,
}

impl<'a> Told<'a> {
    fn by(node: &'a NodeEntry) -> Self {
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

    fn strays(self) -> Option<StraysOfNode> {
        let (first, slice) = self.first?;
        Some(StraysOfNode {
            checked: self.checked,
            outside: self.outside,
            first,
            slice,
            ranges: self.ranges.unwrap_or_default().to_vec(),
        })
    }
}
