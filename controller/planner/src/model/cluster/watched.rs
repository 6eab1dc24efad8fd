//! Connects the guard against mass loss of endpoints to the model.

use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::ServiceId;

use super::super::guard::Guard;
use super::super::kept::Changed;
use super::super::{EndpointSlice, Loss, Moment, SliceId};
use super::{ClusterModel, Touched};

impl ClusterModel {
    /// Passes a change of a slice to the guard, before other state is updated.
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

    /// Enables the guard.
    pub(crate) fn watch_endpoints(&mut self) {
        self.guard.get_or_insert_default();
    }

    /// Sets the time for the following events.
    pub(crate) fn look_at_clock(&mut self, now: Moment) {
        if let Some(guard) = &mut self.guard {
            guard.look_at_clock(now);
        }
    }

    /// Evaluates vanished endpoints, after all events of a batch were applied.
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

    /// The mass loss of endpoints that is reported or held, if any.
    pub fn loss(&self) -> Option<Loss> {
        self.guard.as_ref().and_then(Guard::loss)
    }

    /// Whether this controller saw the end of a stored loss: its endpoints returned, or do not count any more.
    pub fn loss_has_ended(&self, id: &Arc<str>) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.has_ended(id))
    }

    /// Held slices, which contain vanished endpoints.
    pub(super) fn own_slices(&self) -> impl Iterator<Item = &Arc<EndpointSlice>> {
        let ids = self.guard.iter().flat_map(Guard::own_slices);
        ids.filter_map(|id| self.slices.get(&id))
    }
}
