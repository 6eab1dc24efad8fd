//! A reverse index: finds the dependents of a key at a cost proportional to the result.

use std::borrow::Borrow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// For each key, its dependents.
#[derive(Debug)]
pub(crate) struct Reverse<K, V>(BTreeMap<K, Few<V>>);

/// At least one value. Nearly always it is exactly one, and a set with one element takes the memory of eleven. The
/// set is boxed, because otherwise each entry would reserve space for it.
#[derive(Debug)]
enum Few<V> {
    One(V),
    #[expect(clippy::box_collection, reason = "it makes each value smaller")]
    More(Box<BTreeSet<V>>),
}

impl<V: Ord> Few<V> {
    fn insert(&mut self, value: V) {
        if let Self::One(one) = self
            && *one == value
        {
            return;
        }
        let mut values = match std::mem::replace(self, Self::More(Box::default())) {
            Self::One(one) => Box::new(BTreeSet::from([one])),
            Self::More(values) => values,
        };
        values.insert(value);
        *self = Self::More(values);
    }

    /// Returns whether no value is left.
    fn remove(&mut self, value: &V) -> bool {
        match self {
            Self::One(one) => one == value,
            Self::More(values) => {
                values.remove(value);
                values.is_empty()
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &V> {
        let (one, more) = match self {
            Self::One(one) => (Some(one), None),
            Self::More(values) => (None, Some(values.iter())),
        };
        one.into_iter().chain(more.into_iter().flatten())
    }
}

impl<K, V> Default for Reverse<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord, V: Ord> Reverse<K, V> {
    pub(crate) fn insert(&mut self, key: K, value: V) {
        match self.0.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(Few::One(value));
            }
            Entry::Occupied(mut entry) => entry.get_mut().insert(value),
        }
    }

    /// A key without dependents takes no memory (S-189).
    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q, value: &V)
    where
        K: Borrow<Q>,
    {
        if self.0.get_mut(key).is_some_and(|few| few.remove(value)) {
            self.0.remove(key);
        }
    }

    /// The dependents of all keys in a range.
    pub(crate) fn range(&self, keys: RangeInclusive<K>) -> impl Iterator<Item = &V> {
        self.0.range(keys).flat_map(|(_, few)| few.iter())
    }

    pub(crate) fn get<'a, Q: Ord + ?Sized>(
        &'a self,
        key: &Q,
    ) -> impl Iterator<Item = &'a V> + use<'a, K, V, Q>
    where
        K: Borrow<Q>,
    {
        self.0.get(key).into_iter().flat_map(Few::iter)
    }
}
