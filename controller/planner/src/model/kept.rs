//! Objects of one kind, by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::Reason;
use super::event::ObjectChange;

/// An object of the Kubernetes API, as far as plans depend on it.
pub trait ClusterObject: Eq {
    /// Name, and namespace where the kind has one.
    type Id: Ord + Clone + fmt::Debug + fmt::Display;

    /// Its identity within its kind.
    fn id(&self) -> Self::Id;

    /// The identity of another object of this kind.
    fn id_of(namespace: &str, name: &str) -> Self::Id;

    /// Fields that were ignored when it was read.
    fn ignored(&self) -> &[Reason] {
        &[]
    }

    /// The same, to add to them; `None` for kinds that are read completely or not at all.
    fn ignored_mut(&mut self) -> Option<&mut Vec<Reason>> {
        None
    }
}

/// All objects of one kind.
#[derive(Debug)]
pub(super) struct Kept<T: ClusterObject>(BTreeMap<T::Id, Arc<T>>);

impl<T: ClusterObject> Default for Kept<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// An object before and after a change; the two differ, and at least one exists.
pub(super) struct Changed<T> {
    pub(super) before: Option<Arc<T>>,
    pub(super) after: Option<Arc<T>>,
}

impl<T> Changed<T> {
    /// The object before and after, if it exists.
    pub(super) fn both(&self) -> impl Iterator<Item = &Arc<T>> {
        self.before.iter().chain(&self.after)
    }

    /// Values of the object that were added or removed.
    pub(super) fn differing<V: Ord + Copy>(&self, values: fn(&T) -> &Vec<V>) -> BTreeSet<V> {
        let of = |object: &Option<Arc<T>>| -> BTreeSet<V> {
            let all = object.iter().flat_map(|object| values(object));
            all.copied().collect()
        };
        &of(&self.before) ^ &of(&self.after)
    }
}

impl<T: ClusterObject> Kept<T> {
    pub(super) fn get(&self, id: &T::Id) -> Option<&Arc<T>> {
        self.0.get(id)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Arc<T>> {
        self.0.values()
    }

    /// Applies a change, and returns the differences. An equal object is no change: fields that the planner does not
    /// use are not stored, so changes of them cost nothing (S-12, S-188).
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

/// The object to store, and the change if there is one.
fn compared<T: ClusterObject>(
    before: Option<Arc<T>>,
    after: Arc<T>,
) -> (Arc<T>, Option<Changed<T>>) {
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
