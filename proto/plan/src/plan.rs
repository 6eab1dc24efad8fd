//! A node's plan, and the only way to change it.
//!
//! Changes are staged and checked against the resulting hash that the sender announced. Then all of them take effect,
//! or none.

mod part;

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

use crate::key::ListKey;
use crate::{
    BackendList, BucketHashes, Buckets, Entry, EntryHash, EntryKey, Family, Head, HeadPort,
    ListUse, Local, NodeEntry, PlanHash, ServiceId,
};

/// One change to a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The entry is added or replaced.
    Upsert {
        /// The entry's key.
        key: EntryKey,
        /// The hash of its encoded bytes.
        hash: EntryHash,
        /// Its value; `None` if the bytes could not be decoded. Then the last valid value stays in use, and the entry
        /// counts as received but not as applied.
        entry: Option<Entry>,
    },
    /// The entry is removed. Removing an entry that does not exist is allowed.
    Remove {
        /// The entry's key.
        key: EntryKey,
    },
}

impl Change {
    /// The key of the changed entry.
    pub fn key(&self) -> &EntryKey {
        match self {
            Self::Upsert { key, .. } | Self::Remove { key } => key,
        }
    }
}

/// An entry in a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    /// The hash of the bytes received last.
    received: EntryHash,
    /// The last value that could be decoded, and the hash of its bytes.
    good: Option<(EntryHash, Entry)>,
}

/// The plan of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePlan {
    entries: BTreeMap<EntryKey, Held>,
    received: PlanHash,
    usable: PlanHash,
}

impl NodePlan {
    /// A plan of these entries.
    pub fn from_entries(entries: impl IntoIterator<Item = (EntryKey, EntryHash, Entry)>) -> Self {
        let mut plan = Self::default();
        for (key, hash, entry) in entries {
            plan.put(Change::Upsert {
                key,
                hash,
                entry: Some(entry),
            });
        }
        plan
    }

    /// The hash of all bytes received.
    pub fn hash(&self) -> PlanHash {
        self.received
    }

    /// The hash of the values in use. It differs from [`NodePlan::hash`] while an entry could not be decoded.
    pub fn usable_hash(&self) -> PlanHash {
        self.usable
    }

    /// The hash of the entries in each bucket, as received.
    pub fn bucket_hashes(&self) -> BucketHashes {
        let mut buckets = BucketHashes::default();
        for (key, held) in &self.entries {
            buckets.add(key.bucket(), held.received);
        }
        buckets
    }

    /// The hash received last for a key, and the value in use if that could be decoded.
    pub fn held(&self, key: &EntryKey) -> Option<(EntryHash, Option<&Entry>)> {
        let held = self.entries.get(key)?;
        let good = held
            .good
            .as_ref()
            .filter(|(hash, _)| *hash == held.received);
        Some((held.received, good.map(|(_, entry)| entry)))
    }

    /// All keys with the hash of their bytes.
    pub fn keys(&self) -> impl Iterator<Item = (&EntryKey, EntryHash)> {
        self.entries.iter().map(|(key, held)| (key, held.received))
    }

    /// All entries with a valid value, in order of their keys.
    pub fn entries(&self) -> impl Iterator<Item = (&EntryKey, &Entry)> {
        self.good()
    }

    /// The keys whose last bytes could not be decoded.
    pub fn unread(&self) -> impl Iterator<Item = &EntryKey> {
        // Usually there are none; then no entry has to be read.
        let any = self.usable != self.received;
        let is_unread = |held: &Held| {
            let good = held.good.as_ref();
            good.is_none_or(|(hash, _)| *hash != held.received)
        };
        let unread = self
            .entries
            .iter()
            .filter(move |(_, held)| any && is_unread(held));
        unread.map(|(key, _)| key)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the plan has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The last valid value of an entry.
    pub fn get(&self, key: &EntryKey) -> Option<&Entry> {
        self.entries.get(key)?.good.as_ref().map(|(_, entry)| entry)
    }

    /// The node entry; `None` before the first plan.
    pub fn node(&self) -> Option<&Arc<NodeEntry>> {
        match self.get(&EntryKey::Node)? {
            Entry::Node(node) => Some(node),
            _ => None,
        }
    }

    /// A Service.
    pub fn head(&self, service: &ServiceId) -> Option<&Arc<Head>> {
        match self.get(&EntryKey::Head(service.clone()))? {
            Entry::Head(head) => Some(head),
            _ => None,
        }
    }

    /// All Services in order.
    pub fn heads(&self) -> impl Iterator<Item = (&ServiceId, &Arc<Head>)> {
        self.good().filter_map(|(key, entry)| match (key, entry) {
            (EntryKey::Head(service), Entry::Head(head)) => Some((service, head)),
            _ => None,
        })
    }

    /// All lists in order.
    pub fn lists(&self) -> impl Iterator<Item = (&ListKey, &Arc<BackendList>)> {
        self.good().filter_map(|(key, entry)| match (key, entry) {
            (EntryKey::List(list), Entry::List(backends)) => Some((list, backends)),
            _ => None,
        })
    }

    /// This node's endpoints, by Service, in order.
    pub fn locals(&self) -> impl Iterator<Item = (&ServiceId, &Arc<Local>)> {
        self.good().filter_map(|(key, entry)| match (key, entry) {
            (EntryKey::Local(service), Entry::Local(local)) => Some((service, local)),
            _ => None,
        })
    }

    fn good(&self) -> impl Iterator<Item = (&EntryKey, &Entry)> {
        self.entries
            .iter()
            .filter_map(|(key, held)| held.good.as_ref().map(|(_, entry)| (key, entry)))
    }

    /// The list that serves a port in a family. `None`, which means an empty list, if the plan does not contain it.
    pub fn backends(
        &self,
        service: &ServiceId,
        port: &HeadPort,
        list: &ListUse,
        family: Family,
    ) -> Option<&Arc<BackendList>> {
        let key = ListKey {
            service: service.clone(),
            port: port.name.clone(),
            family,
            scope: self.node()?.complete(list.choice(family).scope),
        };
        match self.get(&EntryKey::List(key))? {
            Entry::List(backends) => Some(backends),
            _ => None,
        }
    }

    /// Applies the staged changes, if they lead to the hash that the sender announced.
    ///
    /// # Errors
    /// [`HashMismatch`] if they do not; the plan is then unchanged.
    pub fn apply(&mut self, staged: StagedChanges, expected: PlanHash) -> Result<(), HashMismatch> {
        let mut hash = match &staged.replaces {
            Replaces::Nothing => self.received,
            Replaces::Everything => PlanHash::default(),
            Replaces::Buckets(buckets) => {
                let held = self.entries.iter();
                let stay = held.filter(|(key, _)| !buckets.contains(key.bucket()));
                stay.fold(PlanHash::default(), |sum, (_, held)| {
                    sum.with(held.received)
                })
            }
        };
        for (key, change) in &staged.changes {
            if !staged.replaces.covers(key)
                && let Some(held) = self.entries.get(key)
            {
                hash = hash.without(held.received);
            }
            if let Change::Upsert { hash: entry, .. } = change {
                hash = hash.with(*entry);
            }
        }
        if hash != expected {
            return Err(HashMismatch {
                expected,
                found: hash,
            });
        }
        if staged.replaces != Replaces::Nothing {
            let stays =
                |key: &EntryKey| staged.changes.contains_key(key) || !staged.replaces.covers(key);
            self.entries.retain(|key, _| stays(key));
            self.sum();
        }
        for change in staged.changes.into_values() {
            self.put(change);
        }
        Ok(())
    }

    fn put(&mut self, change: Change) {
        let old = self.entries.remove(change.key());
        if let Some(old) = &old {
            self.received = self.received.without(old.received);
            if let Some((hash, _)) = &old.good {
                self.usable = self.usable.without(*hash);
            }
        }
        if let Change::Upsert { key, hash, entry } = change {
            let good = match entry {
                Some(entry) => Some((hash, entry)),
                None => old.and_then(|old| old.good),
            };
            self.received = self.received.with(hash);
            if let Some((hash, _)) = &good {
                self.usable = self.usable.with(*hash);
            }
            self.entries.insert(
                key,
                Held {
                    received: hash,
                    good,
                },
            );
        }
    }

    fn sum(&mut self) {
        let held = || self.entries.values();
        self.received = held().fold(PlanHash::default(), |sum, held| sum.with(held.received));
        self.usable = held()
            .filter_map(|held| held.good.as_ref())
            .fold(PlanHash::default(), |sum, (hash, _)| sum.with(*hash));
    }
}

/// Changes that were received but have not taken effect yet. The last change to a key wins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StagedChanges {
    replaces: Replaces,
    changes: BTreeMap<EntryKey, Change>,
}

/// The entries that are removed unless a staged change names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Replaces {
    #[default]
    Nothing,
    Everything,
    Buckets(Buckets),
}

impl Replaces {
    fn covers(&self, key: &EntryKey) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Buckets(buckets) => buckets.contains(key.bucket()),
        }
    }
}

impl StagedChanges {
    /// Changes to the existing plan.
    pub fn delta() -> Self {
        Self::default()
    }

    /// A whole plan: entries that it does not name are removed.
    pub fn snapshot() -> Self {
        Self {
            replaces: Replaces::Everything,
            ..Self::default()
        }
    }

    /// Some buckets as a whole: entries in these buckets that it does not name are removed.
    pub fn of_buckets(buckets: Buckets) -> Self {
        Self {
            replaces: Replaces::Buckets(buckets),
            ..Self::default()
        }
    }

    /// Stages a change.
    pub fn push(&mut self, change: Change) {
        self.changes.insert(change.key().clone(), change);
    }

    /// The keys of the changed entries.
    pub fn keys(&self) -> impl Iterator<Item = &EntryKey> {
        self.changes.keys()
    }

    /// The number of changed entries.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether no entry is changed.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// Staged changes lead to a different plan than the sender announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the changes lead to plan {found}, but the controller announced {expected}")]
pub struct HashMismatch {
    /// The hash that the sender announced.
    pub expected: PlanHash,
    /// The hash to which the changes lead.
    pub found: PlanHash,
}
