//! The endpoints of a Service port, merged from all its slices.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::{Backend, BackendList, Family, LocalEndpoint, Protocol};

use crate::model::{Endpoint, EndpointSlice, ServicePort};

/// The weight of every backend.
const WEIGHT: u16 = 1;

/// The endpoints of one port, by address and port, each once.
#[derive(Debug, Default)]
pub(crate) struct PortEndpoints<'a> {
    endpoints: BTreeMap<(IpAddr, u16), &'a Endpoint>,
}

impl<'a> PortEndpoints<'a> {
    /// Merges the slices of a Service (S-10). Where copies of one endpoint disagree, one that does
    /// not terminate is believed first, then the newest slice, then the first by name: whatever
    /// the order in which slices came (S-50, S-51).
    pub(crate) fn merge(
        port: &ServicePort,
        slices: impl Iterator<Item = &'a EndpointSlice>,
    ) -> Self {
        let mut copies = BTreeMap::new();
        for slice in slices {
            let serves = slice
                .ports
                .iter()
                .filter(|p| (&p.name, p.protocol) == (&port.name, port.protocol));
            for number in serves.map(|p| p.port) {
                for endpoint in &slice.endpoints {
                    let rank = (endpoint.terminating, Reverse(slice.generation), &slice.id);
                    let best = copies
                        .entry((endpoint.address, number))
                        .or_insert((rank, endpoint));
                    if rank < best.0 {
                        *best = (rank, endpoint);
                    }
                }
            }
        }
        let believed = |(key, (_, endpoint))| (key, endpoint);
        Self {
            endpoints: copies.into_iter().map(believed).collect(),
        }
    }

    /// All ready endpoints of the cluster in a family (S-7, S-41).
    pub(crate) fn cluster(&self, family: Family) -> BackendList {
        let ready = self
            .endpoints
            .iter()
            .filter(|((address, _), endpoint)| endpoint.ready && Family::of(*address) == family);
        ready
            .map(|((address, port), _)| Backend {
                address: *address,
                port: *port,
                weight: WEIGHT,
            })
            .collect()
    }

    /// All endpoints, ready or not, that say which node they run on: the node's name with each.
    pub(crate) fn on_nodes(
        &self,
        protocol: Protocol,
    ) -> impl Iterator<Item = (&Arc<str>, LocalEndpoint)> {
        self.endpoints
            .iter()
            .filter_map(move |((address, port), endpoint)| {
                let local = LocalEndpoint {
                    address: *address,
                    protocol,
                    port: *port,
                };
                Some((endpoint.node.as_ref()?, local))
            })
    }
}
