//! The endpoints of a Service port, merged from all its slices.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::{Family, LocalEndpoint, Protocol};

use crate::model::{Endpoint, EndpointSlice, ServicePort};
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

/// All endpoints that the slices of a Service contain for one of its ports (S-10).
pub(crate) fn copies<'a>(
    port: &ServicePort,
    slices: impl Iterator<Item = &'a EndpointSlice>,
) -> impl Iterator<Item = EndpointCopy<'a>> {
    slices.flat_map(|slice| {
        let serves = slice
            .ports
            .iter()
            .filter(|p| (&p.name, p.protocol) == (&port.name, port.protocol));
        serves.flat_map(move |own| {
            slice.endpoints.iter().map(move |endpoint| EndpointCopy {
                slice,
                endpoint,
                port: own.port,
            })
        })
    })
}

/// The endpoints of one port by address and port, without duplicates.
#[derive(Debug, Default)]
pub(crate) struct PortEndpoints<'a> {
    endpoints: BTreeMap<(IpAddr, u16), EndpointCopy<'a>>,
}

impl<'a> PortEndpoints<'a> {
    /// Merges the slices of a Service; for each endpoint the copy with the best rank is used (S-50, S-51).
    pub(crate) fn merge(
        port: &ServicePort,
        slices: impl Iterator<Item = &'a EndpointSlice>,
    ) -> Self {
        let mut endpoints = BTreeMap::new();
        for copy in copies(port, slices) {
            let best = endpoints.entry(copy.reached()).or_insert(copy);
            if copy.rank() < best.rank() {
                *best = copy;
            }
        }
        Self { endpoints }
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
