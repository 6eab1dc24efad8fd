//! The real servers of a virtual server: either a list shared with the plan, or their own list.
//!
//! A node holds them up to four times: in its plan, as desired state, as last written, and as observed. These are
//! nearly always equal, so they share the plan's list, and only differences take memory.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use litemap::LiteMap;
use portolan_plan::{Backend, BackendList};

use crate::RealServerKey;

/// Weights by backend, in the order of backends. Cloning is cheap; a change to a list shared with the plan copies it.
#[derive(Clone)]
pub struct RealServers(Held);

#[derive(Clone)]
enum Held {
    /// The plan's list.
    Plan(Arc<BackendList>),
    /// A sorted list: a node has tens of thousands of short lists and seldom changes one.
    Own(LiteMap<RealServerKey, u32>),
}

impl RealServers {
    /// An empty list.
    pub const fn new() -> Self {
        Self(Held::Own(LiteMap::new()))
    }

    /// The number of real servers.
    pub fn len(&self) -> usize {
        match &self.0 {
            Held::Plan(list) => list.len(),
            Held::Own(own) => own.len(),
        }
    }

    /// Whether there are no real servers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The weight of a real server; `None` if it is not in the list.
    pub fn get(&self, key: &RealServerKey) -> Option<u32> {
        match &self.0 {
            Held::Plan(list) => {
                let backends = list.as_slice();
                let place = backends.binary_search_by(|backend| compare(backend, key));
                let backend = backends.get(place.ok()?)?;
                Some(backend.weight.into())
            }
            Held::Own(own) => own.get(key).copied(),
        }
    }

    /// Whether the list contains a real server.
    pub fn contains_key(&self, key: &RealServerKey) -> bool {
        self.get(key).is_some()
    }

    /// The real servers with their weights, in order.
    pub fn iter(&self) -> impl Iterator<Item = (RealServerKey, u32)> {
        static NONE: LiteMap<RealServerKey, u32> = LiteMap::new();
        // One of the two parts is always empty.
        let (plan, own) = match &self.0 {
            Held::Plan(list) => (list.as_slice(), &NONE),
            Held::Own(own) => (&[][..], own),
        };
        let own = own.iter().map(|(key, weight)| (*key, *weight));
        plan.iter().map(pair).chain(own)
    }

    /// The real servers without their weights, in order.
    pub fn keys(&self) -> impl Iterator<Item = RealServerKey> {
        self.iter().map(|(key, _)| key)
    }

    /// Adds a real server or changes its weight, and returns the previous weight.
    pub fn insert(&mut self, key: RealServerKey, weight: u32) -> Option<u32> {
        self.change(|own| own.insert(key, weight))
    }

    /// Removes a real server and returns its weight.
    pub fn remove(&mut self, key: &RealServerKey) -> Option<u32> {
        self.change(|own| own.remove(key))
    }

    /// Reserves capacity for `more` real servers.
    pub(crate) fn reserve(&mut self, more: usize) {
        self.change(|own| own.reserve(more));
    }

    /// Shares the memory of `with` if both are equal.
    pub(crate) fn share(&mut self, with: &Self) {
        if self == with {
            *self = with.clone();
        }
    }

    /// Whether both share the same list of a plan.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Held::Plan(left), Held::Plan(right)) => Arc::ptr_eq(left, right),
            _ => false,
        }
    }

    /// Changes the list, after copying it if it is shared with the plan.
    fn change<T>(&mut self, change: impl FnOnce(&mut LiteMap<RealServerKey, u32>) -> T) -> T {
        let mut own = match std::mem::take(self).0 {
            Held::Plan(list) => list.as_slice().iter().map(pair).collect(),
            Held::Own(own) => own,
        };
        let changed = change(&mut own);
        self.0 = Held::Own(own);
        changed
    }
}

impl Default for RealServers {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Arc<BackendList>> for RealServers {
    fn from(list: Arc<BackendList>) -> Self {
        Self(Held::Plan(list))
    }
}

impl FromIterator<(RealServerKey, u32)> for RealServers {
    fn from_iter<T: IntoIterator<Item = (RealServerKey, u32)>>(all: T) -> Self {
        Self(Held::Own(all.into_iter().collect()))
    }
}

impl Extend<(RealServerKey, u32)> for RealServers {
    fn extend<T: IntoIterator<Item = (RealServerKey, u32)>>(&mut self, more: T) {
        self.change(|own| own.extend(more));
    }
}

impl PartialEq for RealServers {
    fn eq(&self, other: &Self) -> bool {
        self.is_shared_with(other) || (self.len() == other.len() && self.iter().eq(other.iter()))
    }
}

impl Eq for RealServers {}

/// Formats a map, independent of the storage.
impl fmt::Debug for RealServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

fn pair(backend: &Backend) -> (RealServerKey, u32) {
    (key(backend), backend.weight.into())
}

fn key(backend: &Backend) -> RealServerKey {
    RealServerKey {
        address: backend.address,
        port: backend.port,
    }
}

/// Compares by address and port, which is the order of a backend list; each pair occurs once.
fn compare(backend: &Backend, with: &RealServerKey) -> Ordering {
    key(backend).cmp(with)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backends(weights: &[(u8, u16)]) -> Vec<Backend> {
        let backend = |&(last, weight): &(u8, u16)| Backend {
            address: [10, 244, 1, last].into(),
            port: 8080,
            weight,
        };
        weights.iter().map(backend).collect()
    }

    /// The same real servers, as a plan's list and as an own list.
    fn both(weights: &[(u8, u16)]) -> [RealServers; 2] {
        let list = BackendList::new(backends(weights));
        let own = list.as_slice().iter().map(pair).collect();
        [Arc::new(list).into(), own]
    }

    fn is_of_plan(servers: &RealServers) -> bool {
        matches!(servers.0, Held::Plan(_))
    }

    #[test]
    fn both_storages_behave_the_same() {
        let [plan, own] = both(&[(3, 1), (1, 0), (2, 65_535)]);
        assert!(is_of_plan(&plan) && !is_of_plan(&own));
        assert_eq!(plan, own);
        assert_eq!(format!("{plan:?}"), format!("{own:?}"));
        let there = pair(&backends(&[(2, 65_535)])[0]);
        let other = pair(&backends(&[(4, 1)])[0]);
        for mut one in [plan, own] {
            assert_eq!((one.len(), one.is_empty()), (3, false));
            assert!(one.keys().is_sorted());
            assert_eq!(one.get(&there.0), Some(65_535));
            assert_eq!(one.get(&other.0), None);
            assert_eq!(one.insert(other.0, other.1), None);
            assert_eq!(one.remove(&there.0), Some(65_535));
            assert_eq!(one, both(&[(1, 0), (3, 1), (4, 1)])[0]);
        }
    }

    #[test]
    fn equal_ones_are_kept_once_and_a_change_of_one_is_no_change_of_the_other() {
        let [plan, mut found] = both(&[(1, 1), (2, 1)]);
        found.share(&plan);
        assert!(found.is_shared_with(&plan));
        let drained = found.keys().next().unwrap();
        found.insert(drained, 0);
        assert_eq!(
            (found.get(&drained), plan.get(&drained)),
            (Some(0), Some(1))
        );
        found.share(&plan);
        assert!(!is_of_plan(&found), "they differ");
        assert_ne!(found, plan);
    }

    #[test]
    fn a_weight_or_a_backend_more_makes_them_others() {
        let [plan, own] = both(&[(1, 1), (2, 1)]);
        for others in [both(&[(1, 1), (2, 2)]), both(&[(1, 1)]), both(&[])] {
            for other in &others {
                assert_ne!(plan, *other);
                assert_ne!(own, *other);
            }
        }
    }
}
