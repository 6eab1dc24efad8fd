//! How far a kind was read. Two controllers compare their marks to find which of them is ahead.

use std::collections::BTreeMap;

use portolan_planner::model::ObjectId;
use tokio::time::Instant;
use xxhash_rust::xxh3::Xxh3;

/// How far a kind was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mark {
    /// The newest resource version received: of the whole store (from lists and bookmarks), or of an object.
    pub newest: u64,
    /// The wrapping sum of xxh3-64 over UID, a zero byte and version of each object.
    pub sum: u64,
    /// Number of lists of the kind; each one is a consistent read.
    pub lists: u64,
    /// When the request of the last list began. The list contains everything that any controller had read before.
    pub began: Option<Instant>,
}

/// Keeps the mark of one kind.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    mark: Mark,
    of: BTreeMap<ObjectId, u64>,
}

/// Identifies one version of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) id: ObjectId,
    pub(super) uid: String,
    pub(super) version: String,
}

impl Identity {
    fn hash(&self) -> u64 {
        let mut hasher = Xxh3::new();
        hasher.update(self.uid.as_bytes());
        hasher.update(&[0]);
        hasher.update(self.version.as_bytes());
        hasher.digest()
    }
}

impl Ledger {
    pub(super) fn mark(&self) -> Mark {
        self.mark
    }

    /// Replaces all objects by those of a list of this version, whose request began at this time.
    pub(super) fn all(
        &mut self,
        objects: impl Iterator<Item = Identity>,
        version: &str,
        began: Instant,
    ) {
        self.of = objects
            .map(|object| (object.id.clone(), object.hash()))
            .collect();
        let hashes = self.of.values();
        self.mark.sum = hashes.fold(0, |sum: u64, hash| sum.wrapping_add(*hash));
        self.mark.lists += 1;
        self.mark.began = Some(began);
        // Even if this version is older: a restored store starts again from there.
        self.mark.newest = number(version);
    }

    /// Adds or updates an object.
    pub(super) fn present(&mut self, object: &Identity) {
        let hash = object.hash();
        let before = self.of.insert(object.id.clone(), hash).unwrap_or_default();
        self.mark.sum = self.mark.sum.wrapping_sub(before).wrapping_add(hash);
        self.passed(&object.version);
    }

    /// Removes an object that was deleted at this version.
    pub(super) fn gone(&mut self, object: &Identity) {
        let before = self.of.remove(&object.id).unwrap_or_default();
        self.mark.sum = self.mark.sum.wrapping_sub(before);
        self.passed(&object.version);
    }

    /// Advances to this version if it is newer.
    pub(super) fn passed(&mut self, version: &str) {
        self.mark.newest = self.mark.newest.max(number(version));
    }
}

/// Resource versions are increasing numbers and may be compared (Kubernetes 1.35, KEP-5504). One that is not a number
/// counts as 0, so with such a server no controller counts as behind.
fn number(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, version: &str) -> Identity {
        Identity {
            id: ObjectId::Node(name.into()),
            uid: format!("uid-of-{name}"),
            version: version.into(),
        }
    }

    #[test]
    fn equal_objects_have_equal_sums_in_any_order() {
        let mut watched = Ledger::default();
        let now = Instant::now();
        watched.all([node("a", "3"), node("b", "4")].into_iter(), "5", now);
        watched.present(&node("c", "6"));
        watched.present(&node("a", "7"));
        watched.gone(&node("b", "8"));
        let mut listed = Ledger::default();
        listed.all([node("a", "7"), node("c", "6")].into_iter(), "9", now);
        assert_eq!(watched.mark().sum, listed.mark().sum);
        assert_eq!((watched.mark().newest, listed.mark().newest), (8, 9));
        listed.present(&node("c", "10"));
        assert_ne!(watched.mark().sum, listed.mark().sum);
    }

    #[test]
    fn a_restored_store_is_older_and_still_authoritative() {
        let mut ledger = Ledger::default();
        let now = Instant::now();
        ledger.all([node("a", "900")].into_iter(), "1000", now);
        ledger.passed("1200");
        ledger.all([node("a", "100")].into_iter(), "200", now);
        assert_eq!((ledger.mark().newest, ledger.mark().lists), (200, 2));
    }
}
