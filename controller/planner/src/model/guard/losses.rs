//! Vanished endpoints, by their slices.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use portolan_plan::ServiceId;

use super::Moment;
use crate::model::{Endpoint, EndpointSlice, ObjectChange, SliceId};
use crate::reverse::Reverse;

/// Prefix of the names of held slices; names in Kubernetes contain no colon.
const PREFIX: &str = "held:";

/// A slice that lost endpoints.
#[derive(Debug)]
struct Origin {
    service: ServiceId,
    /// Its version when it lost the last one.
    form: Arc<EndpointSlice>,
    lost: BTreeMap<IpAddr, (Moment, Endpoint)>,
}

/// Endpoints that vanished and have not returned.
#[derive(Debug, Default)]
pub(super) struct Losses {
    origins: BTreeMap<SliceId, Origin>,
    /// The slices from which an address vanished.
    places: Reverse<IpAddr, SliceId>,
    count: usize,
    /// In the order of time, including endpoints that returned since. Empty while a loss is in force.
    queue: VecDeque<(Moment, SliceId, IpAddr)>,
    time_is_held: bool,
    /// Slices to be checked.
    touched: BTreeSet<SliceId>,
    check_all: bool,
    rebuild: bool,
    /// Slices with a held slice.
    held: BTreeSet<SliceId>,
}

impl Losses {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Records that an endpoint vanished from this slice.
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
                // The held endpoints would have ports that they never had.
                self.drop_all(id);
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
        if !self.time_is_held {
            self.queue.push_back((now, id.clone(), endpoint.address));
        }
        self.touched.insert(id.clone());
    }

    /// Whether this address vanished from some slice.
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

    /// An address returned: in this Service, or with another owner.
    pub(super) fn find(&mut self, address: IpAddr, of: Option<&ServiceId>) {
        let places: Vec<_> = self.places.get(&address).cloned().collect();
        for id in places {
            let origin = self.origins.get(&id);
            if origin.is_some_and(|origin| of.is_none_or(|of| *of == origin.service)) {
                self.drop_one(&id, address);
            }
        }
    }

    /// Removes endpoints that vanished outside of this time range.
    pub(super) fn forget_but(&mut self, times: RangeInclusive<Moment>) {
        while let Some((at, _, _)) = self.queue.front()
            && !times.contains(at)
            && let Some((at, id, address)) = self.queue.pop_front()
        {
            let origin = self.origins.get(&id);
            let lost = origin.and_then(|origin| origin.lost.get(&address));
            // It may have returned and vanished again.
            if lost.is_some_and(|(since, _)| *since == at) {
                self.drop_one(&id, address);
            }
        }
    }

    /// Stops expiry of recorded endpoints.
    pub(super) fn hold_time(&mut self) {
        self.time_is_held = true;
        self.queue = VecDeque::new();
    }

    /// Removes all recorded endpoints.
    pub(super) fn forget(&mut self) {
        let held = std::mem::take(&mut self.held);
        *self = Self {
            held,
            rebuild: true,
            ..Self::default()
        };
    }

    /// Services or Nodes may have changed: check all endpoints.
    pub(super) fn check_all(&mut self) {
        self.check_all = true;
    }

    /// Rebuilds all held slices.
    pub(super) fn rebuild(&mut self) {
        self.rebuild = true;
    }

    /// Removes endpoints that do not count, in changed slices.
    pub(super) fn keep(&mut self, counts: impl Fn(&ServiceId, &Endpoint) -> bool) {
        let looked_at = match std::mem::take(&mut self.check_all) {
            true => self.origins.keys().cloned().collect(),
            false => self.touched.clone(),
        };
        for id in looked_at {
            let Some(origin) = self.origins.get(&id) else {
                continue;
            };
            let lost = origin.lost.iter();
            let gone = lost.filter(|(_, (_, endpoint))| !counts(&origin.service, endpoint));
            let gone: Vec<_> = gone.map(|(address, _)| *address).collect();
            for address in gone {
                self.drop_one(&id, address);
            }
        }
    }

    fn drop_all(&mut self, id: &SliceId) {
        let origin = self.origins.get(id).into_iter();
        let all: Vec<_> = origin
            .flat_map(|origin| origin.lost.keys())
            .copied()
            .collect();
        for address in all {
            self.drop_one(id, address);
        }
    }

    fn drop_one(&mut self, id: &SliceId, address: IpAddr) {
        let Some(origin) = self.origins.get_mut(id) else {
            return;
        };
        if origin.lost.remove(&address).is_none() {
            return;
        }
        if origin.lost.is_empty() {
            self.origins.remove(id);
        }
        self.count -= 1;
        self.places.remove(&address, id);
        self.touched.insert(id.clone());
    }

    /// The changes of held slices, depending on whether losses are held.
    pub(super) fn changes(&mut self, hold: bool) -> Vec<ObjectChange<EndpointSlice>> {
        let mut touched = std::mem::take(&mut self.touched);
        if std::mem::take(&mut self.rebuild) {
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
            // Slices of the cluster are always newer.
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
    /// The held slice for endpoints that vanished from this slice.
    fn held(&self) -> Self {
        Self {
            namespace: self.namespace.clone(),
            name: format!("{PREFIX}{}", self.name).into(),
        }
    }

    /// Whether it is a held slice.
    pub(in crate::model) fn is_held(&self) -> bool {
        self.name.starts_with(PREFIX)
    }
}
