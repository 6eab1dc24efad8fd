//! Tells who depends on something, at the cost of the answer.

use std::borrow::Borrow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// For each key, who depends on it.
#[derive(Debug)]
pub(crate) struct Reverse<K, V>(BTreeMap<K, Few<V>>);

/// At least one value; nearly always exactly one, and a set of one takes the room of eleven. The set is boxed, because
/// each value would have room for it.
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

    /// Whether nothing is left.
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

    /// A key on which nobody depends any more takes no memory (S-189).
    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q, value: &V)
    where
        K: Borrow<Q>,
    {
        if self.0.get_mut(key).is_some_and(|few| few.remove(value)) {
            self.0.remove(key);
        }
    }

    /// Who depends on any key of a range.
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
