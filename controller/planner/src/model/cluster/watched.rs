//! What the guard of endpoints is told of the cluster, and what it changes in it.

use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::ServiceId;

use super::super::guard::Guard;
use super::super::kept::Changed;
use super::super::{EndpointSlice, Loss, Moment, SliceId};
use super::{ClusterModel, Touched};

impl ClusterModel {
    /// Before anything else knows of the change.
    pub(super) fn watch_over(&mut self, changed: &Changed<EndpointSlice>) {
        let Some(mut guard) = self.guard.take() else {
            return;
        };
        let own = changed.both().next().map(|slice| &slice.id);
        let stands = |service: &ServiceId, address: IpAddr| {
            let slices = self.residents.slices_at(address);
            let mut others = slices.filter(|id| Some(*id) != own && !id.is_held());
            others.any(|id| {
                let slice = self.slices.get(id);
                slice.and_then(|slice| slice.service_id()).as_ref() == Some(service)
            })
        };
        if !own.is_some_and(SliceId::is_held) {
            let is_nodes = |address| self.owners.nodes_at(address).next().is_some();
            guard.follow(changed, stands, is_nodes);
        }
        self.guard = Some(guard);
    }

    /// From now on endpoints are watched over.
    pub(crate) fn watch_endpoints(&mut self) {
        self.guard.get_or_insert_default();
    }

    /// It is so late while what comes next is taken in.
    pub(crate) fn look_at_clock(&mut self, now: Moment) {
        if let Some(guard) = &mut self.guard {
            guard.look_at_clock(now);
        }
    }

    /// Decides about endpoints that vanished, once everything that came together was taken in.
    pub(crate) fn settle(&mut self) -> Touched {
        let mut touched = Touched::default();
        let Some(mut guard) = self.guard.take() else {
            return touched;
        };
        let guarding = self.config_in_force().map(|config| config.guarding.clone());
        let changes = guard.settle(guarding.as_ref(), |service, endpoint| {
            let node = endpoint.node.as_ref().and_then(|node| self.nodes.get(node));
            self.services.get(service).is_some() && node.is_some_and(|node| node.ready)
        });
        self.guard = Some(guard);
        for change in changes {
            self.change_slices(change, &mut touched);
        }
        touched
    }

    /// The endpoints that vanished in mass, while that is reported or held.
    pub fn loss(&self) -> Option<Loss> {
        self.guard.as_ref().and_then(Guard::loss)
    }

    /// Whether a stored loss was seen to end here: what vanished was seen again, or is not well any more.
    pub fn loss_has_ended(&self, id: &Arc<str>) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.has_ended(id))
    }

    /// Slices of our own, of endpoints that vanished.
    pub(super) fn own_slices(&self) -> impl Iterator<Item = &Arc<EndpointSlice>> {
        let ids = self.guard.iter().flat_map(Guard::own_slices);
        ids.filter_map(|id| self.slices.get(&id))
    }
}
