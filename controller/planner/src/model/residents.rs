//! Addresses that have an endpoint in the cluster, in any state.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::kept::Changed;
use super::{EndpointSlice, SliceId};
use crate::reverse::Reverse;

/// The slices of each address; nearly always one. All addresses of a slice share its name.
#[derive(Debug, Default)]
pub(super) struct Residents(Reverse<IpAddr, Arc<SliceId>>);

impl Residents {
    /// Applies a change of a slice, and returns the addresses that may have appeared or disappeared: those in only
    /// one of its versions, or with another node.
    pub(super) fn follow(&mut self, changed: &Changed<EndpointSlice>) -> BTreeSet<IpAddr> {
        for slice in changed.before.iter() {
            let id = Arc::new(slice.id.clone());
            for endpoint in &slice.endpoints {
                self.0.remove(&endpoint.address, &id);
            }
        }
        for slice in changed.after.iter() {
            let id = Arc::new(slice.id.clone());
            for endpoint in &slice.endpoints {
                self.0.insert(endpoint.address, id.clone());
            }
        }
        let places = |slice: Option<&EndpointSlice>| -> BTreeSet<_> {
            let endpoints = slice.into_iter().flat_map(|slice| &slice.endpoints);
            endpoints.map(|e| (e.address, e.node.clone())).collect()
        };
        let before = places(changed.before.as_deref());
        let after = places(changed.after.as_deref());
        let differing = before.symmetric_difference(&after);
        differing.map(|(address, _)| *address).collect()
    }

    /// The slices with an endpoint of this address.
    pub(super) fn slices_at(&self, address: IpAddr) -> impl Iterator<Item = &SliceId> {
        self.0.get(&address).map(AsRef::as_ref)
    }
}
