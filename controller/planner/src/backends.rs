//! The endpoints of a Service port, merged from all its slices.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::{Family, LocalEndpoint, Protocol};

use crate::limits::MAX_ENDPOINTS;
use crate::model::{Endpoint, EndpointSlice, ServicePort, SlicePort};
use crate::selection::Reached;

/// An endpoint of a port in one slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndpointCopy<'a> {
    /// The slice.
    pub(crate) slice: &'a EndpointSlice,
    /// The endpoint in this slice.
    pub(crate) endpoint: &'a Endpoint,
    /// The port of the endpoint.
    pub(crate) port: u16,
}

impl EndpointCopy<'_> {
    /// Copies with the same address and port describe one endpoint (S-50).
    pub(crate) fn reached(&self) -> (IpAddr, u16) {
        (self.endpoint.address, self.port)
    }

    /// If copies disagree, the one with the lowest rank is used: ready before not ready, then serving while
    /// terminating, then not terminating, then one that names a node, then the newest slice, then the first slice by
    /// name. The order of arrival and the order within slices do not matter (S-51, S-217, S-245).
    fn rank(&self) -> impl Ord {
        let (slice, endpoint) = (self.slice, self.endpoint);
        (
            self.usability(),
            endpoint.node.is_none(),
            Reverse(slice.generation),
            &slice.id,
        )
    }

    /// The first part of the rank. Copies with the same value are equally usable.
    fn usability(&self) -> impl Ord + use<> {
        let endpoint = self.endpoint;
        let serves = endpoint.serving && endpoint.terminating;
        (!endpoint.ready, !serves, endpoint.terminating)
    }
}

/// The slices of a Service by the ports that they serve (S-10). A search for each port would cost ports times ports.
#[derive(Debug, Default)]
pub(crate) struct PortSlices<'a> {
    /// By the name of the port.
    of: BTreeMap<&'a str, Vec<(&'a EndpointSlice, &'a SlicePort)>>,
    /// Number of endpoints in slices beyond [`MAX_ENDPOINTS`].
    pub(crate) left_out: usize,
}

impl<'a> PortSlices<'a> {
    pub(crate) fn new(slices: impl Iterator<Item = &'a EndpointSlice>) -> Self {
        let (mut found, mut endpoints) = (Self::default(), 0);
        for slice in slices {
            endpoints += slice.endpoints.len();
            if endpoints > MAX_ENDPOINTS {
                found.left_out += slice.endpoints.len();
                continue;
            }
            for port in &slice.ports {
                found.of.entry(&*port.name).or_default().push((slice, port));
            }
        }
        found
    }

    /// All endpoints that the slices contain for a port.
    pub(crate) fn copies(&self, port: &ServicePort) -> impl Iterator<Item = EndpointCopy<'a>> {
        let protocol = port.protocol;
        let slices = self.of.get(&*port.name).into_iter().flatten();
        let slices = slices.filter(move |(_, own)| own.protocol == protocol);
        slices.flat_map(|(slice, own)| {
            slice.endpoints.iter().map(|endpoint| EndpointCopy {
                slice,
                endpoint,
                port: own.port,
            })
        })
    }
}

/// The endpoints of one port by address and port, without duplicates.
#[derive(Debug, Default)]
pub(crate) struct PortEndpoints<'a> {
    endpoints: BTreeMap<(IpAddr, u16), EndpointCopy<'a>>,
    /// Copies that are as usable as those in `endpoints`, but name another node: they count on that node (S-245).
    on_other_nodes: BTreeMap<((IpAddr, u16), &'a Arc<str>), EndpointCopy<'a>>,
    /// Number of copies beyond the limit.
    pub(crate) left_out: usize,
}

impl<'a> PortEndpoints<'a> {
    /// Merges the slices of a Service for these families; for each endpoint the copy with the best rank is used (S-50,
    /// S-51), and on each node that copies name, the best one that names it (S-245). Of more than `most` endpoints of a
    /// family, ready ones come first.
    pub(crate) fn merge(
        port: &ServicePort,
        slices: &PortSlices<'a>,
        families: impl Iterator<Item = Family>,
        most: usize,
    ) -> Self {
        let (mut merged, mut displaced) = (Self::default(), Vec::new());
        let mut add = |merged: &mut Self, copy| displaced.extend(merged.add(copy));
        for family in families {
            let of_family =
                move |copy: &EndpointCopy<'a>| Family::of(copy.endpoint.address) == family;
            let copies = || slices.copies(port).filter(of_family);
            let count = copies().count();
            if count <= most {
                copies().for_each(|copy| add(&mut merged, copy));
                continue;
            }
            merged.left_out += count - most;
            let ready = copies().filter(|copy| copy.endpoint.ready);
            let others = copies().filter(|copy| !copy.endpoint.ready);
            let kept = ready.chain(others).take(most);
            kept.for_each(|copy| add(&mut merged, copy));
        }
        displaced
            .into_iter()
            .for_each(|copy| merged.keep_on_its_node(copy));
        merged
    }

    /// Adds a copy. Of two copies of an endpoint, returns the one that is not used.
    fn add(&mut self, copy: EndpointCopy<'a>) -> Option<EndpointCopy<'a>> {
        match self.endpoints.entry(copy.reached()) {
            Entry::Vacant(place) => {
                place.insert(copy);
                None
            }
            Entry::Occupied(mut place) => {
                let best = place.get_mut();
                Some(if copy.rank() < best.rank() {
                    std::mem::replace(best, copy)
                } else {
                    copy
                })
            }
        }
    }

    /// Keeps a copy that is not used in general, if it counts on the node that it names.
    fn keep_on_its_node(&mut self, copy: EndpointCopy<'a>) {
        let (Some(best), Some(node)) = (
            self.endpoints.get(&copy.reached()),
            copy.endpoint.node.as_ref(),
        ) else {
            return;
        };
        let is_as_usable = copy.usability() == best.usability();
        if is_as_usable && best.endpoint.node.as_ref() != Some(node) {
            let kept = self.on_other_nodes.entry((copy.reached(), node));
            let kept = kept.or_insert(copy);
            if copy.rank() < kept.rank() {
                *kept = copy;
            }
        }
    }

    /// The copy of an endpoint that is used, except on nodes that other copies name.
    pub(crate) fn believed(&self, reached: (IpAddr, u16)) -> Option<&EndpointCopy<'a>> {
        self.endpoints.get(&reached)
    }

    /// The copy of an endpoint that policy Local uses on a node.
    pub(crate) fn believed_on(
        &self,
        node: &Arc<str>,
        reached: (IpAddr, u16),
    ) -> Option<EndpointCopy<'a>> {
        let own = self.on_other_nodes.get(&(reached, node));
        own.or_else(|| self.believed(reached)).copied()
    }

    /// The endpoints of a family, ready or not, in order (S-7).
    pub(crate) fn of(&self, family: Family) -> Vec<Reached<'a>> {
        let all = self.endpoints.iter();
        all.filter(|((address, _), _)| Family::of(*address) == family)
            .map(|((address, port), copy)| (*address, *port, copy.endpoint))
            .collect()
    }

    /// Endpoints of a family that are local to further nodes, because copies name several (S-245).
    pub(crate) fn of_other_nodes(&self, family: Family) -> Vec<Reached<'a>> {
        let all = self.on_other_nodes.values();
        all.filter(|copy| Family::of(copy.endpoint.address) == family)
            .map(|copy| (copy.endpoint.address, copy.port, copy.endpoint))
            .collect()
    }

    /// All endpoints with a node: the node name, the endpoint, and whether it is ready.
    pub(crate) fn on_nodes(
        &self,
        protocol: Protocol,
    ) -> impl Iterator<Item = (&Arc<str>, LocalEndpoint, bool)> {
        let copies = self.endpoints.values().chain(self.on_other_nodes.values());
        copies.filter_map(move |copy| {
            let local = LocalEndpoint {
                address: copy.endpoint.address,
                protocol,
                port: copy.port,
            };
            Some((copy.endpoint.node.as_ref()?, local, copy.endpoint.ready))
        })
    }
}
