//! The Services of a batch: their state at its start and at its end, and the order in which they are sent.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

use portolan_plan::ServiceId;

use super::encoded::{EncodedNode, EncodedService};
use super::history::Was;
use super::snapshot::Snapshot;
use super::walk::Begin;
use super::{Numbered, Plans};

/// The part of a map or set behind a key.
pub(super) fn behind(after: Option<&ServiceId>) -> (Bound<&ServiceId>, Bound<&ServiceId>) {
    let start = after.map_or(Bound::Unbounded, Bound::Excluded);
    (start, Bound::Unbounded)
}

/// The state of Services at the start and the end of a walk.
pub(super) struct Then<'a> {
    services: &'a BTreeMap<ServiceId, Arc<EncodedService>>,
    critical: &'a BTreeSet<ServiceId>,
    numbered: Option<&'a Numbered>,
    /// Services that changed after the version at the end, in their state at the end.
    since_end: BTreeMap<&'a ServiceId, &'a Was>,
    /// The same for the version at the start.
    since_begin: BTreeMap<&'a ServiceId, &'a Was>,
    /// If set, only these Services are considered.
    only_changed: bool,
}

impl<'a> Then<'a> {
    /// Of a walk over the plans; `None` if the history does not reach back to its start.
    pub(super) fn new(
        plans: &'a Plans,
        begin: &Begin,
        version: u64,
        node: &EncodedNode,
    ) -> Option<Self> {
        let (since_begin, only_changed) = match begin {
            Begin::Position(position) => {
                // In another zone a node may use other lists of every Service.
                let same_zone = position.node.value.zone == node.value.zone;
                (plans.history.since(position.version)?, same_zone)
            }
            Begin::Nothing | Begin::Buckets(_) => (BTreeMap::new(), false),
        };
        Some(Self {
            services: &plans.services,
            critical: &plans.critical,
            numbered: Some(&plans.numbered),
            since_end: plans.history.since(version)?,
            since_begin,
            only_changed,
        })
    }

    /// Of a walk that takes everything from a snapshot.
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        Self {
            services: &snapshot.services,
            critical: &snapshot.critical,
            numbered: None,
            since_end: BTreeMap::new(),
            since_begin: BTreeMap::new(),
            only_changed: false,
        }
    }

    pub(super) fn at_end(&self, id: &ServiceId) -> Option<&'a Arc<EncodedService>> {
        match self.since_end.get(id) {
            Some(was) => was.service.as_ref(),
            None => self.now(id),
        }
    }

    fn now(&self, id: &ServiceId) -> Option<&'a Arc<EncodedService>> {
        // By its number if that is unchanged, which is faster than by name.
        let was = self.since_begin.get(id);
        let numbered = was.and_then(|was| self.numbered?.get(was.number));
        let same = numbered.filter(|service| service.is(id));
        same.or_else(|| self.services.get(id))
    }

    pub(super) fn at_begin(&self, id: &ServiceId) -> Option<&'a Arc<EncodedService>> {
        match self.since_begin.get(id) {
            Some(was) => was.service.as_ref(),
            None => self.services.get(id),
        }
    }

    /// The Services to process after one, in order: those that come first, or all.
    pub(super) fn after<'t>(&'t self, first: bool, after: Option<&'t ServiceId>) -> Merged<'a, 't> {
        let bounds = behind(after);
        let changed = self.since_begin.range::<ServiceId, _>(bounds);
        let changed: Ids<'a, 't> = Box::new(changed.map(|(id, _)| *id));
        let sources = if self.only_changed {
            vec![changed]
        } else {
            let present: Ids<'a, 't> = if first {
                Box::new(self.critical.range::<ServiceId, _>(bounds))
            } else {
                let services = self.services.range::<ServiceId, _>(bounds);
                Box::new(services.map(|(id, _)| id))
            };
            let ended = self.since_end.range::<ServiceId, _>(bounds);
            vec![present, changed, Box::new(ended.map(|(id, _)| *id))]
        };
        Merged(sources.into_iter().map(Iterator::peekable).collect())
    }
}

/// Names of Services in order.
type Ids<'a, 't> = Box<dyn Iterator<Item = &'a ServiceId> + 't>;

/// Merges sorted names from several sources, without duplicates.
pub(super) struct Merged<'a, 't>(Vec<Peekable<Ids<'a, 't>>>);

impl<'a> Iterator for Merged<'a, '_> {
    type Item = &'a ServiceId;

    fn next(&mut self) -> Option<&'a ServiceId> {
        let least = self.0.iter_mut().filter_map(|ids| ids.peek().copied());
        let least = least.min()?;
        for ids in &mut self.0 {
            ids.next_if(|id| *id == least);
        }
        Some(least)
    }
}
