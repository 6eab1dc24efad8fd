//! The endpoints of a Service port, merged from all its slices.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::{Family, LocalEndpoint, Protocol};

use crate::model::{Endpoint, EndpointSlice, ServicePort};
use crate::selection::Reached;

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

    /// Those of a family, ready or not, in order (S-7).
    pub(crate) fn of(&self, family: Family) -> Vec<Reached<'a>> {
        let all = self.endpoints.iter();
        all.filter(|((address, _), _)| Family::of(*address) == family)
            .map(|((address, port), endpoint)| (*address, *port, *endpoint))
            .collect()
    }

    /// All endpoints that say which node they run on: the node's name with each, and whether it is
    /// ready.
    pub(crate) fn on_nodes(
        &self,
        protocol: Protocol,
    ) -> impl Iterator<Item = (&Arc<str>, LocalEndpoint, bool)> {
        self.endpoints
            .iter()
            .filter_map(move |((address, port), endpoint)| {
                let local = LocalEndpoint {
                    address: *address,
                    protocol,
                    port: *port,
                };
                Some((endpoint.node.as_ref()?, local, endpoint.ready))
            })
    }
}
