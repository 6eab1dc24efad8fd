//! The Services that changed in a batch from a plan that was sent: their state at its start and at its end.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use portolan_plan::ServiceId;

use super::encoded::EncodedService;
use super::history::Was;
use super::{Numbered, Plans};

/// The part of a map or set behind a key.
pub(super) fn behind(after: Option<&ServiceId>) -> (Bound<&ServiceId>, Bound<&ServiceId>) {
    let start = after.map_or(Bound::Unbounded, Bound::Excluded);
    (start, Bound::Unbounded)
}

/// The state of changed Services at the start and the end of a walk.
pub(super) struct Then<'a> {
    services: &'a BTreeMap<ServiceId, Arc<EncodedService>>,
    numbered: &'a Numbered,
    /// Services that changed after the version at the end, in their state at the end.
    since_end: BTreeMap<&'a ServiceId, &'a Was>,
    /// The same for the version at the start.
    since_begin: BTreeMap<&'a ServiceId, &'a Was>,
}

impl<'a> Then<'a> {
    /// Of a walk from one version to another; `None` if the history does not reach back to its start.
    pub(super) fn new(plans: &'a Plans, from: u64, to: u64) -> Option<Self> {
        Some(Self {
            services: &plans.services,
            numbered: &plans.numbered,
            since_end: plans.history.since(to)?,
            since_begin: plans.history.since(from)?,
        })
    }

    /// The changed Services behind one, in order, with their states at the start and at the end.
    pub(super) fn after(
        &self,
        after: Option<&ServiceId>,
    ) -> impl Iterator<
        Item = (
            &'a ServiceId,
            Option<&'a Arc<EncodedService>>,
            Option<&'a Arc<EncodedService>>,
        ),
    > {
        let changed = self.since_begin.range::<ServiceId, _>(behind(after));
        changed.map(|(id, was)| (*id, was.service.as_ref(), self.at_end(id, was)))
    }

    fn at_end(&self, id: &ServiceId, was: &Was) -> Option<&'a Arc<EncodedService>> {
        if let Some(later) = self.since_end.get(id) {
            return later.service.as_ref();
        }
        // By its number if that is unchanged, which is faster than by name.
        let numbered = self.numbered.get(was.number);
        let same = numbered.filter(|service| service.is(id));
        same.or_else(|| self.services.get(id))
    }
}
