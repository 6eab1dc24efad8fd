//! Endpoints that vanished, by the slice in which they stood.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::ServiceId;

use super::Moment;
use crate::model::{Endpoint, EndpointSlice, ObjectChange, SliceId};
use crate::reverse::Reverse;

/// How the names of our own slices begin; no name in Kubernetes has a colon.
const PREFIX: &str = "held:";

/// A slice that lost endpoints.
#[derive(Debug)]
struct Origin {
    service: ServiceId,
    /// Its form when it lost the last one.
    form: Arc<EndpointSlice>,
    lost: BTreeMap<IpAddr, (Moment, Endpoint)>,
}

/// What vanished and was not seen again.
#[derive(Debug, Default)]
pub(super) struct Losses {
    origins: BTreeMap<SliceId, Origin>,
    /// From which slices an address vanished.
    places: Reverse<IpAddr, SliceId>,
    count: usize,
    /// In the order of time; also what was seen again since.
    queue: VecDeque<(Moment, SliceId, IpAddr)>,
    /// Slices to be looked at.
    touched: BTreeSet<SliceId>,
    look_at_all: bool,
    /// Slices of which we have one of our own.
    held: BTreeSet<SliceId>,
}

impl Losses {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// An endpoint vanished from this slice.
    pub(super) fn lose(
        &mut self,
        form: &Arc<EndpointSlice>,
        service: &ServiceId,
        endpoint: &Endpoint,
        now: Moment,
    ) {
        let id = &form.id;
        if let Some(origin) = self.origins.get_mut(id)
            && !Arc::ptr_eq(&origin.form, form)
        {
            let is_like = origin.form.ports == form.ports && origin.service == *service;
            origin.form = form.clone();
            if !is_like {
                // Its endpoints would have ports that they never had.
                self.drop_if(id, |_, _, _| true);
            }
        }
        let origin = self.origins.entry(id.clone()).or_insert_with(|| Origin {
            service: service.clone(),
            form: form.clone(),
            lost: BTreeMap::new(),
        });
        if origin
            .lost
            .insert(endpoint.address, (now, endpoint.clone()))
            .is_none()
        {
            self.count += 1;
            self.places.insert(endpoint.address, id.clone());
        }
        self.queue.push_back((now, id.clone(), endpoint.address));
        self.touched.insert(id.clone());
    }

    /// Whether this address vanished somewhere.
    pub(super) fn knows(&self, address: IpAddr) -> bool {
        self.places.get(&address).next().is_some()
    }

    /// Whether it vanished from this Service.
    pub(super) fn find_of(&self, service: &ServiceId, address: IpAddr) -> bool {
        let mut places = self.places.get(&address);
        places.any(|id| {
            self.origins
                .get(id)
                .is_some_and(|origin| origin.service == *service)
        })
    }

    /// An address is seen again: of this Service, or as somebody else's.
    pub(super) fn find(&mut self, address: IpAddr, of: Option<&ServiceId>) {
        let places: Vec<_> = self.places.get(&address).cloned().collect();
        for id in places {
            self.drop_if(&id, |service, lost, _| {
                *lost == address && of.is_none_or(|of| of == service)
            });
        }
    }

    /// What vanished before this is not remembered.
    pub(super) fn forget_before(&mut self, time: Moment) {
        while let Some((at, _, _)) = self.queue.front()
            && *at < time
            && let Some((at, id, address)) = self.queue.pop_front()
        {
            self.drop_if(&id, |_, lost, (since, _)| *lost == address && *since == at);
        }
    }

    /// Nothing is remembered.
    pub(super) fn forget(&mut self) {
        self.origins.clear();
        self.places = Reverse::default();
        self.queue.clear();
        self.count = 0;
        self.look_at_all = true;
    }

    pub(super) fn look_at_all(&mut self) {
        self.look_at_all = true;
    }

    /// Drops what does not count, of slices that were touched.
    pub(super) fn keep(&mut self, counts: impl Fn(&ServiceId, &Endpoint) -> bool) {
        let looked_at = match self.look_at_all {
            true => self.origins.keys().cloned().collect(),
            false => self.touched.clone(),
        };
        for id in looked_at {
            self.drop_if(&id, |service, _, (_, endpoint)| !counts(service, endpoint));
        }
    }

    fn drop_if(
        &mut self,
        id: &SliceId,
        drops: impl Fn(&ServiceId, &IpAddr, &(Moment, Endpoint)) -> bool,
    ) {
        let Some(origin) = self.origins.get_mut(id) else {
            return;
        };
        let before = origin.lost.len();
        let (service, places) = (&origin.service, &mut self.places);
        origin.lost.retain(|address, lost| {
            let dropped = drops(service, address, lost);
            if dropped {
                places.remove(address, id);
            }
            !dropped
        });
        let dropped = before - origin.lost.len();
        if dropped == 0 {
            return;
        }
        self.count -= dropped;
        if origin.lost.is_empty() {
            self.origins.remove(id);
        }
        self.touched.insert(id.clone());
    }

    /// What changes in our own slices, where what vanished is held or not.
    pub(super) fn changes(&mut self, hold: bool) -> Vec<ObjectChange<EndpointSlice>> {
        let mut touched = std::mem::take(&mut self.touched);
        if std::mem::take(&mut self.look_at_all) {
            touched.extend(self.held.iter().cloned());
            touched.extend(self.origins.keys().cloned());
        }
        let mut changes = Vec::new();
        for id in touched {
            match self.origins.get(&id).filter(|_| hold) {
                Some(origin) => {
                    changes.push(ObjectChange::Upsert(origin.own_slice()));
                    self.held.insert(id);
                }
                None if self.held.remove(&id) => changes.push(ObjectChange::Remove(id.held())),
                None => {}
            }
        }
        changes
    }

    pub(super) fn own_slices(&self) -> impl Iterator<Item = SliceId> {
        self.held.iter().map(SliceId::held)
    }
}

impl Origin {
    fn own_slice(&self) -> EndpointSlice {
        EndpointSlice {
            id: self.form.id.held(),
            // Whatever the cluster says of the same endpoint is newer.
            generation: i64::MIN,
            endpoints: self
                .lost
                .values()
                .map(|(_, endpoint)| endpoint.clone())
                .collect(),
            ignored: Vec::new(),
            service: self.form.service.clone(),
            address_type: self.form.address_type,
            ports: self.form.ports.clone(),
        }
    }
}

impl SliceId {
    /// Our own slice, for what vanished from this one.
    fn held(&self) -> Self {
        Self {
            namespace: self.namespace.clone(),
            name: format!("{PREFIX}{}", self.name).into(),
        }
    }

    /// Whether it is one of our own.
    pub(in crate::model) fn is_held(&self) -> bool {
        self.name.starts_with(PREFIX)
    }
}
