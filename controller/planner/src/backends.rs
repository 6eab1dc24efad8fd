//! The endpoints of a Service port, merged from all its slices.

use std::cmp::Reverse;
use std::collections::BTreeMap;
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
    /// terminating, then not terminating, then the newest slice, then the first slice by name. The order of arrival
    /// and the order within slices do not matter (S-51, S-217).
    fn rank(&self) -> impl Ord {
        let (slice, endpoint) = (self.slice, self.endpoint);
        let serves = endpoint.serving && endpoint.terminating;
        (
            !endpoint.ready,
            !serves,
            endpoint.terminating,
            Reverse(slice.generation),
            &slice.id,
        )
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
    /// Number of copies beyond the limit.
    pub(crate) left_out: usize,
}

impl<'a> PortEndpoints<'a> {
    /// Merges the slices of a Service for these families; for each endpoint the copy with the best rank is used (S-50,
    /// S-51). Of more than `most` endpoints of a family, ready ones come first.
    pub(crate) fn merge(
        port: &ServicePort,
        slices: &PortSlices<'a>,
        families: impl Iterator<Item = Family>,
        most: usize,
    ) -> Self {
        let mut merged = Self::default();
        for family in families {
            let of_family =
                move |copy: &EndpointCopy<'a>| Family::of(copy.endpoint.address) == family;
            let copies = || slices.copies(port).filter(of_family);
            let count = copies().count();
            if count <= most {
                copies().for_each(|copy| merged.add(copy));
                continue;
            }
            merged.left_out += count - most;
            let ready = copies().filter(|copy| copy.endpoint.ready);
            let others = copies().filter(|copy| !copy.endpoint.ready);
            let kept = ready.chain(others).take(most);
            kept.for_each(|copy| merged.add(copy));
        }
        merged
    }

    fn add(&mut self, copy: EndpointCopy<'a>) {
        let best = self.endpoints.entry(copy.reached()).or_insert(copy);
        if copy.rank() < best.rank() {
            *best = copy;
        }
    }

    /// The copy of an endpoint that is used.
    pub(crate) fn believed(&self, reached: (IpAddr, u16)) -> Option<&EndpointCopy<'a>> {
        self.endpoints.get(&reached)
    }

    /// The endpoints of a family, ready or not, in order (S-7).
    pub(crate) fn of(&self, family: Family) -> Vec<Reached<'a>> {
        let all = self.endpoints.iter();
        all.filter(|((address, _), _)| Family::of(*address) == family)
            .map(|((address, port), copy)| (*address, *port, copy.endpoint))
            .collect()
    }

    /// All endpoints with a node: the node name, the endpoint, and whether it is ready.
    pub(crate) fn on_nodes(
        &self,
        protocol: Protocol,
    ) -> impl Iterator<Item = (&Arc<str>, LocalEndpoint, bool)> {
        self.endpoints
            .iter()
            .filter_map(move |((address, port), copy)| {
                let local = LocalEndpoint {
                    address: *address,
                    protocol,
                    port: *port,
                };
                Some((copy.endpoint.node.as_ref()?, local, copy.endpoint.ready))
            })
    }
}
