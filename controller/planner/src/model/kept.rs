//! Objects of one kind, by name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::event::ObjectChange;

/// A thing of the cluster that has a name.
pub trait Object: Eq {
    /// Its name within its kind.
    type Id: Ord + Clone + std::fmt::Debug + Eq;

    /// Its name.
    fn id(&self) -> Self::Id;
}

/// All objects of one kind.
#[derive(Debug)]
pub(super) struct Kept<T: Object>(BTreeMap<T::Id, Arc<T>>);

impl<T: Object> Default for Kept<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// An object before and after a change; they differ, and one of them is there.
pub(super) struct Changed<T> {
    pub(super) before: Option<Arc<T>>,
    pub(super) after: Option<Arc<T>>,
}

impl<T> Changed<T> {
    /// What was there, and what is there now.
    pub(super) fn both(&self) -> impl Iterator<Item = &Arc<T>> {
        self.before.iter().chain(&self.after)
    }

    /// Of values that an object has, those that it got or lost.
    pub(super) fn differing<V: Ord + Copy>(&self, values: fn(&T) -> &Vec<V>) -> BTreeSet<V> {
        let of = |object: &Option<Arc<T>>| -> BTreeSet<V> {
            let all = object.iter().flat_map(|object| values(object));
            all.copied().collect()
        };
        &of(&self.before) ^ &of(&self.after)
    }
}

impl<T: Object> Kept<T> {
    pub(super) fn get(&self, id: &T::Id) -> Option<&Arc<T>> {
        self.0.get(id)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Arc<T>> {
        self.0.values()
    }

    /// Makes the change, and tells what differs from before. An equal object is no change: the
    /// fields that nobody reads are not kept, so they cost nothing (S-12, S-188).
    pub(super) fn apply(&mut self, change: ObjectChange<T>) -> Vec<Changed<T>> {
        match change {
            ObjectChange::Upsert(object) => self.put(object).into_iter().collect(),
            ObjectChange::Remove(id) => self.take(&id).into_iter().collect(),
            ObjectChange::Replace(objects) => {
                let mut gone = std::mem::take(&mut self.0);
                let mut present = BTreeMap::new();
                for object in objects {
                    present.insert(object.id(), Arc::new(object));
                }
                let mut changed = Vec::new();
                for (id, after) in present {
                    let before = gone.remove(&id);
                    let (kept, change) = compared(before, after);
                    self.0.insert(id, kept);
                    changed.extend(change);
                }
                let removed = |before| Changed {
                    before: Some(before),
                    after: None,
                };
                changed.extend(gone.into_values().map(removed));
                changed
            }
        }
    }

    fn put(&mut self, object: T) -> Option<Changed<T>> {
        let id = object.id();
        let (kept, change) = compared(self.0.remove(&id), Arc::new(object));
        self.0.insert(id, kept);
        change
    }

    fn take(&mut self, id: &T::Id) -> Option<Changed<T>> {
        let before = self.0.remove(id)?;
        Some(Changed {
            before: Some(before),
            after: None,
        })
    }
}

/// What to keep, and the change if there is one.
fn compared<T: Object>(before: Option<Arc<T>>, after: Arc<T>) -> (Arc<T>, Option<Changed<T>>) {
    match before {
        Some(before) if *before == *after => (before, None),
        before => (
            after.clone(),
            Some(Changed {
                before,
                after: Some(after),
            }),
        ),
    }
}
