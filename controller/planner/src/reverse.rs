//! Tells who depends on something, at the cost of the answer.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// For each key, who depends on it.
#[derive(Debug)]
pub(crate) struct Reverse<K, V>(BTreeMap<K, BTreeSet<V>>);

impl<K, V> Default for Reverse<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord, V: Ord> Reverse<K, V> {
    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.0.entry(key).or_default().insert(value);
    }

    /// A key on which nobody depends any more takes no memory (S-189).
    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q, value: &V)
    where
        K: Borrow<Q>,
    {
        if let Some(values) = self.0.get_mut(key) {
            values.remove(value);
            if values.is_empty() {
                self.0.remove(key);
            }
        }
    }

    /// Who depends on any key of a range.
    pub(crate) fn range(&self, keys: RangeInclusive<K>) -> impl Iterator<Item = &V> {
        self.0.range(keys).flat_map(|(_, values)| values)
    }

    pub(crate) fn get<'a, Q: Ord + ?Sized>(
        &'a self,
        key: &Q,
    ) -> impl Iterator<Item = &'a V> + use<'a, K, V, Q>
    where
        K: Borrow<Q>,
    {
        self.0.get(key).into_iter().flatten()
    }
}
