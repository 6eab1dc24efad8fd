//! Where plans stand between the engine that makes them and the streams that carry them.
//!
//! Each entry is encoded and hashed once; the same bytes go to every node that uses it. A stream
//! remembers a [`Position`], not a copy of what it sent: what changed since is worked out from the
//! log of replaced Services, at the cost of the change.

mod encoded;
mod history;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use portolan_plan::{EntryKey, NodeEntry, NodePlan, PlanHash, ServiceId};
use portolan_planner::Update;
use tokio::sync::watch;

use encoded::{EncodedEntry, EncodedNode, EncodedService};
use history::History;

/// The plans of all nodes.
#[derive(Debug)]
pub struct Store {
    plans: RwLock<Plans>,
    version: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Plans {
    /// Grows with each change; 0 before a first one.
    version: u64,
    services: BTreeMap<ServiceId, Arc<EncodedService>>,
    nodes: BTreeMap<Arc<str>, Arc<EncodedNode>>,
    /// Addresses that have an endpoint, in whatever state.
    residents: BTreeSet<IpAddr>,
    history: History,
}

/// What a node was sent last.
#[derive(Debug, Clone)]
pub struct Position {
    version: u64,
    node: Arc<EncodedNode>,
    hash: PlanHash,
}

impl Position {
    /// The hash of the plan at this position.
    pub fn hash(&self) -> PlanHash {
        self.hash
    }
}

/// What a node has to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Whether it is the whole plan.
    pub snapshot: bool,
    /// Entries with new bytes; boot-critical Services first.
    pub upserts: Vec<(EntryKey, Bytes)>,
    /// Entries that are gone.
    pub removals: Vec<EntryKey>,
    /// The hash of the plan that it leads to.
    pub hash: PlanHash,
}

impl Batch {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.upserts.is_empty() && self.removals.is_empty()
    }
}

impl Default for Store {
    fn default() -> Self {
        Self {
            plans: RwLock::default(),
            version: watch::Sender::new(0),
        }
    }
}

impl Store {
    /// Takes what the planner changed, and wakes the streams.
    pub fn publish(&self, update: Update) {
        let mut plans = self.plans.write().unwrap_or_else(PoisonError::into_inner);
        plans.version += 1;
        let version = plans.version;
        for (id, planned) in update.services {
            let old = match planned {
                Some(planned) => {
                    let previous = plans.services.get(&id).cloned();
                    let encoded = EncodedService::new(&id, planned, previous.as_deref());
                    plans.services.insert(id.clone(), Arc::new(encoded))
                }
                None => plans.services.remove(&id),
            };
            plans.history.push(version, id, old);
        }
        for (name, entry) in update.nodes {
            match entry {
                Some(entry) => {
                    plans.nodes.insert(name, Arc::new(EncodedNode::new(entry)));
                }
                None => {
                    plans.nodes.remove(&name);
                }
            }
        }
        for (address, resident) in update.residents {
            if resident {
                plans.residents.insert(address);
            } else {
                plans.residents.remove(&address);
            }
        }
        drop(plans);
        self.version.send_replace(version);
    }

    /// Those of the addresses that no endpoint of the cluster has any more; `None` before a first plan
    /// was published, when nothing is known.
    pub fn without_endpoint(&self, addresses: &BTreeSet<IpAddr>) -> Option<BTreeSet<IpAddr>> {
        let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
        let known = plans.version > 0;
        known.then(|| addresses.difference(&plans.residents).copied().collect())
    }

    /// Tells of every change. The first value seen is 0 while nothing was published.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// What leads a node from a position to the present; from nothing without one. `None` while
    /// there is no such node.
    pub fn batch(&self, node: &str, since: Option<&Position>) -> Option<(Batch, Position)> {
        let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
        let current = plans.nodes.get(node)?;
        let batch = since
            .and_then(|position| plans.delta(position, current))
            .unwrap_or_else(|| plans.snapshot(current));
        let position = Position {
            version: plans.version,
            node: current.clone(),
            hash: batch.hash,
        };
        Some((batch, position))
    }

    /// The present position of a node that says it holds the plan with this hash; `None` if it is
    /// another plan.
    pub fn resume(&self, node: &str, held: PlanHash) -> Option<Position> {
        let (batch, position) = self.batch(node, None)?;
        (batch.hash == held).then_some(position)
    }

    /// The node's whole plan as a value; `None` while there is no such node.
    pub fn plan(&self, node: &str) -> Option<NodePlan> {
        let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
        let current = plans.nodes.get(node)?;
        let entries = plans.entries(current);
        Some(NodePlan::from_entries(
            entries.map(|(key, e)| (key, e.hash, e.entry)),
        ))
    }
}

impl Plans {
    fn entries(&self, node: &EncodedNode) -> impl Iterator<Item = (EntryKey, EncodedEntry)> {
        let own = (EntryKey::Node, node.encoded.clone());
        let services = self.services.values();
        std::iter::once(own).chain(services.flat_map(|service| service.entries_for(&node.value)))
    }

    fn snapshot(&self, node: &EncodedNode) -> Batch {
        let mut difference = Difference::default();
        difference.new.extend(self.entries(node));
        difference.finish(self, true, PlanHash::default())
    }

    /// `None` when the history does not reach back that far.
    fn delta(&self, since: &Position, node: &EncodedNode) -> Option<Batch> {
        let mut difference = Difference::default();
        difference
            .old
            .insert(EntryKey::Node, since.node.encoded.clone());
        difference.new.insert(EntryKey::Node, node.encoded.clone());
        let replaced = self.history.since(since.version)?;
        let (before, now) = (&since.node.value, &node.value);
        if (&before.name, &before.zone) == (&now.name, &now.zone) {
            for (id, old) in replaced {
                difference.service(old, self.services.get(id), before, now);
            }
        } else {
            // In another zone a node may use other lists of every Service.
            let gone = replaced
                .keys()
                .filter(|id| !self.services.contains_key(**id))
                .copied();
            for id in self.services.keys().chain(gone) {
                let present = self.services.get(id);
                let old = replaced.get(id).copied().unwrap_or(present);
                difference.service(old, present, before, now);
            }
        }
        Some(difference.finish(self, false, since.hash))
    }
}

/// Entries of a node before and after.
#[derive(Debug, Default)]
struct Difference {
    old: BTreeMap<EntryKey, EncodedEntry>,
    new: BTreeMap<EntryKey, EncodedEntry>,
}

impl Difference {
    fn service(
        &mut self,
        old: Option<&Arc<EncodedService>>,
        new: Option<&Arc<EncodedService>>,
        before: &NodeEntry,
        now: &NodeEntry,
    ) {
        self.old.extend(
            old.into_iter()
                .flat_map(|service| service.entries_for(before)),
        );
        self.new
            .extend(new.into_iter().flat_map(|service| service.entries_for(now)));
    }

    fn finish(self, plans: &Plans, snapshot: bool, mut hash: PlanHash) -> Batch {
        let mut upserts = Vec::new();
        for (key, entry) in &self.new {
            if let Some(old) = self.old.get(key) {
                if old.hash == entry.hash {
                    continue;
                }
                hash = hash.without(old.hash);
            }
            hash = hash.with(entry.hash);
            upserts.push((key.clone(), entry.bytes.clone()));
        }
        let mut removals = Vec::new();
        for (key, entry) in self.old {
            if !self.new.contains_key(&key) {
                hash = hash.without(entry.hash);
                removals.push(key);
            }
        }
        // The sort is stable: within each group the order of keys stays.
        upserts.sort_by_key(|(key, _)| !plans.comes_first(key));
        Batch {
            snapshot,
            upserts,
            removals,
            hash,
        }
    }
}

impl Plans {
    fn comes_first(&self, key: &EntryKey) -> bool {
        match key.service() {
            Some(id) => self
                .services
                .get(id)
                .is_some_and(|service| service.is_boot_critical()),
            None => true,
        }
    }
}
