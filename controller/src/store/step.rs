//! The step from one form of a Service to another. It is the same for all nodes of a zone that the Service does not
//! name, so it is computed once for them: thousands of streams ask for it at every change.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use portolan_plan::{Buckets, EntryKey, NodeEntry, PlanHash};
use portolan_proto::item;

use super::encoded::{EncodedEntry, EncodedService};

/// Maximum number of steps cached per Service: for each zone, from the previous form and from nothing.
const MAX_CACHED_STEPS: usize = 16;

/// Items gathered for one message.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) items: Vec<Bytes>,
    pub(super) bytes: usize,
}

impl Piece {
    fn push(&mut self, item: Bytes) {
        self.bytes += item.len();
        self.items.push(item);
    }

    fn extend(&mut self, items: &[Bytes]) {
        for item in items {
            self.push(item.clone());
        }
    }

    /// The entries of a node in these buckets.
    pub(super) fn buckets(&mut self, entries: Vec<(EntryKey, EncodedEntry)>, buckets: &Buckets) {
        for (_, entry) in entries {
            if buckets.contains(entry.bucket) {
                self.upsert(&entry);
            }
        }
    }

    /// Adds an entry.
    pub(super) fn upsert(&mut self, entry: &EncodedEntry) {
        self.extend(&entry.items);
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, key: &EntryKey) {
        self.push(item::remove(key));
    }

    /// Adds a step.
    pub(super) fn add(&mut self, step: &Step) {
        self.items.extend_from_slice(&step.0.items);
        self.bytes += step.0.bytes;
    }
}

/// Items, and their contribution to the hash of a plan.
#[derive(Debug, Default)]
pub(super) struct Step(Piece, PlanHash);

impl Step {
    /// The hash of a plan after the step.
    pub(super) fn after(&self, hash: PlanHash) -> PlanHash {
        PlanHash(hash.0.wrapping_add(self.1.0))
    }

    /// The size of its items.
    pub(super) fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Adds another step, of another Service.
    pub(super) fn append(&mut self, other: &Self) {
        self.0.add(other);
        self.1 = other.after(self.1);
    }

    /// The step from some entries to others, both in the order of keys.
    pub(super) fn between(
        before: Vec<(EntryKey, EncodedEntry)>,
        now: Vec<(EntryKey, EncodedEntry)>,
    ) -> Self {
        let mut step = Self::default();
        let mut before = before.into_iter().peekable();
        for (key, new) in now {
            while let Some((gone, old)) = before.next_if(|(other, _)| *other < key) {
                step.remove(&gone, &old);
            }
            let old = before.next_if(|(other, _)| *other == key);
            step.put(old.map(|(_, old)| old).as_ref(), &new);
        }
        for (gone, old) in before {
            step.remove(&gone, &old);
        }
        step
    }

    /// Adds the change of an entry.
    pub(super) fn put(&mut self, old: Option<&EncodedEntry>, new: &EncodedEntry) {
        let Self(piece, hash) = self;
        if let Some(old) = old {
            if old.hash == new.hash {
                return;
            }
            *hash = hash.without(old.hash);
        }
        *hash = hash.with(new.hash);
        let patch = new
            .patch
            .as_ref()
            .filter(|patch| old.is_some_and(|old| old.hash == patch.base));
        match patch {
            Some(patch) => piece.push(patch.item.clone()),
            None => piece.upsert(new),
        }
    }

    fn remove(&mut self, key: &EntryKey, old: &EncodedEntry) {
        let Self(piece, hash) = self;
        *hash = hash.without(old.hash);
        piece.remove(key);
    }
}

/// The start of a step, and its zone.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Of {
    /// The version of the Service at the start; `None` if it did not exist.
    from: Option<u64>,
    zone: Option<Arc<str>>,
}

/// The cached steps to one form of a Service.
#[derive(Debug, Default)]
pub(super) struct Steps(Mutex<Vec<(Of, Arc<Step>)>>);

impl Steps {
    fn get(&self, of: Of, make: impl FnOnce() -> Step) -> Arc<Step> {
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, step)) = steps.iter().find(|(other, _)| *other == of) {
            return step.clone();
        }
        let step = Arc::new(make());
        if steps.len() >= MAX_CACHED_STEPS {
            steps.clear();
        }
        steps.push((of, step.clone()));
        step
    }
}

/// The step of a node from one form of a Service to another. A node that changes its zone gets a whole plan instead.
pub(super) fn step(
    before: Option<&Arc<EncodedService>>,
    now: Option<&Arc<EncodedService>>,
    node: &NodeEntry,
) -> Arc<Step> {
    let make = || {
        let entries = |service: &Arc<EncodedService>| service.entries_for(node);
        let (before, now) = (before.map(entries), now.map(entries));
        Step::between(before.unwrap_or_default(), now.unwrap_or_default())
    };
    let names = |service: Option<&Arc<EncodedService>>| {
        service.is_some_and(|service| service.names(&node.name))
    };
    let own = names(before) || names(now);
    let zoned = |service: &Arc<EncodedService>| service.differs_by_zone();
    match now.filter(|_| !own) {
        Some(now) => {
            let zone = node.zone.as_ref();
            let zone = zone.filter(|_| zoned(now) || before.is_some_and(zoned));
            let of = Of {
                from: before.map(|before| before.version),
                zone: zone.cloned(),
            };
            now.steps.get(of, make)
        }
        None => Arc::new(make()),
    }
}
