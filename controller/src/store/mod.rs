//! The plans between the engine that computes them and the streams that send them.
//!
//! Each entry is encoded and hashed once; all nodes that use it get the same bytes. A stream stores a [`Position`],
//! not a copy of what it sent: later changes are computed from the log of replaced Services, at the cost of the
//! change.

pub mod cause;
mod causes;
mod changed;
mod count;
mod encoded;
mod history;
mod node_addresses;
mod recent;
mod shared_delta;
mod shared_plan;
mod snapshot;
mod step;
mod sums;
mod then;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use bytes::Bytes;
use portolan_plan::{BucketHashes, EntryKey, NodeEntry, NodePlan, PlanHash, ServiceId};
use portolan_planner::model::Kind;
use portolan_planner::{PlannedService, Update};
use tokio::sync::watch;

pub use causes::BatchCauses;
use causes::Causes;
use changed::Changed;
use encoded::{EncodedEntry, EncodedNode, EncodedService};
pub use history::HistoryLimits;
use history::{History, Was};
use node_addresses::NodeAddresses;
use recent::Recent;
use shared_delta::{SharedDelta, Span};
use snapshot::SharedSnapshot;
use sums::Sums;
pub use walk::{Begin, Held, Outdated, Walk};

use crate::store::cause::Cause;
use crate::watch::Mark;

/// Requests a consistent list of a kind.
struct Relist(Box<dyn Fn(Kind) + Send + Sync>);

impl fmt::Debug for Relist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Relist")
    }
}

/// The plans of all nodes.
#[derive(Debug)]
pub struct Store {
    plans: RwLock<Plans>,
    version: watch::Sender<u64>,
    marks: watch::Sender<BTreeMap<Kind, Mark>>,
    planned: watch::Sender<BTreeMap<Kind, Mark>>,
    relist: OnceLock<Relist>,
}

#[derive(Debug, Default)]
struct Plans {
    /// Incremented by each change; 0 before the first one.
    version: u64,
    services: BTreeMap<ServiceId, Arc<EncodedService>>,
    numbered: Numbered,
    sums: Sums,
    nodes: BTreeMap<Arc<str>, Arc<EncodedNode>>,
    node_addresses: NodeAddresses,
    /// Addresses with an endpoint in any state.
    residents: BTreeSet<IpAddr>,
    history: History,
    snapshot: SharedSnapshot,
    deltas: Recent<Span, SharedDelta>,
    changed: Changed,
    causes: Causes,
}

/// The state of a Service in the plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceState {
    /// Whether any node serves it.
    pub served: bool,
    /// The version of the plans with its last change. A node has the change if its plan in force is of this version
    /// or a later one.
    pub changed: u64,
    /// Whether an address is among the backends of any node.
    pub listed: bool,
}

/// The plan that was sent to a node last.
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

    /// The version of the plans.
    pub fn version(&self) -> u64 {
        self.version
    }
}

impl Default for Store {
    fn default() -> Self {
        Self {
            plans: RwLock::default(),
            version: watch::Sender::new(0),
            marks: watch::Sender::default(),
            planned: watch::Sender::default(),
            relist: OnceLock::new(),
        }
    }
}

impl Store {
    /// A store with a history of this size; for tests.
    #[must_use]
    pub fn with_limits(limits: HistoryLimits) -> Self {
        let plans = Plans {
            history: History::with_limits(limits),
            ..Plans::default()
        };
        Self {
            plans: RwLock::new(plans),
            ..Self::default()
        }
    }

    /// Applies the planner's update and wakes the streams. Returns the new version of the plans.
    pub fn publish(&self, update: Update) -> u64 {
        self.publish_since(update, None)
    }

    /// The same, with the cause of the update.
    pub fn publish_since(&self, update: Update, cause: Option<Arc<Cause>>) -> u64 {
        let mut plans = self.plans.write().unwrap_or_else(PoisonError::into_inner);
        plans.version += 1;
        let version = plans.version;
        for (id, planned) in update.services {
            plans.replace(id, planned);
        }
        for (name, entry) in update.nodes {
            plans.replace_node(name, entry);
        }
        for (address, resident) in update.residents {
            if resident {
                plans.residents.insert(address);
            } else {
                plans.residents.remove(&address);
            }
        }
        if let Some(cause) = cause {
            plans.causes.push(version, cause);
        }
        drop(plans);
        self.version.send_replace(version);
        version
    }

    /// The causes of the changes in a batch for a node, oldest first. Empty if the batch starts from what the node
    /// reported: which changes are new to it is unknown.
    pub fn causes(&self, walk: &Walk) -> Arc<BatchCauses> {
        let Begin::Position(position) = walk.begin() else {
            return Arc::default();
        };
        let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
        plans.causes.between(position.version(), walk.version())
    }

    /// Those of the addresses without any endpoint in the cluster; `None` before the first plan is published, when
    /// this is unknown.
    pub fn without_endpoint(&self, addresses: &BTreeSet<IpAddr>) -> Option<BTreeSet<IpAddr>> {
        let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
        let known = plans.version > 0;
        known.then(|| addresses.difference(&plans.residents).copied().collect())
    }

    /// Records how far each kind was read for the next update. Must be called before the update: the watermark that
    /// an agent gets with a plan may be ahead of the plan, but never behind.
    pub fn note_marks(&self, marks: &BTreeMap<Kind, Mark>) {
        replace_if_other(&self.marks, marks);
    }

    /// Records that everything read so far is published.
    pub fn note_planned(&self) {
        replace_if_other(&self.planned, &self.marks.borrow());
    }

    /// The minimum watermark of each kind in the plans, or in those about to be published. Empty if plans are not
    /// made from an API server.
    pub fn marks(&self) -> watch::Receiver<BTreeMap<Kind, Mark>> {
        self.marks.subscribe()
    }

    /// The minimum watermark of each kind in the published plans.
    pub fn planned(&self) -> watch::Receiver<BTreeMap<Kind, Mark>> {
        self.planned.subscribe()
    }

    /// The state of a Service, and whether an address is among its backends.
    pub fn service_state(&self, service: &ServiceId, address: Option<IpAddr>) -> ServiceState {
        let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
        let planned = plans.services.get(service);
        let lists = |address| planned.is_some_and(|planned| planned.lists_address(address));
        ServiceState {
            served: planned.is_some(),
            changed: plans.changed.at(service),
            listed: address.is_some_and(lists),
        }
    }

    /// Whether a node has a plan.
    pub fn has_node(&self, node: &str) -> bool {
        let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
        plans.nodes.contains_key(node)
    }

    /// Whether a node with a plan has this address.
    pub fn is_node_address(&self, address: IpAddr) -> bool {
        let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
        plans.node_addresses.contains(address)
    }

    /// The names of all nodes that have a plan, in order.
    pub fn node_names(&self) -> Vec<Arc<str>> {
        let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
        plans.nodes.keys().cloned().collect()
    }

    /// Sets the function that requests a consistent list of a kind. Only the first call has an effect.
    pub fn relist_by(&self, ask: impl Fn(Kind) + Send + Sync + 'static) {
        drop(self.relist.set(Relist(Box::new(ask))));
    }

    /// Requests a consistent list of a kind.
    pub fn ask_for_list(&self, kind: Kind) {
        if let Some(relist) = self.relist.get() {
            relist.0(kind);
        }
    }

    /// Notifies of every change. The first value is 0 if nothing has been published.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Starts a batch that takes a node from what it holds to the present. `None` if there is no such node.
    pub fn begin(&self, node: &str, held: Held) -> Option<Walk> {
        let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
        let node = plans.nodes.get(node)?;
        Some(Walk::new(&plans, node, held))
    }

    /// The next items of a batch, about `bytes` bytes. Empty at the end.
    ///
    /// # Errors
    /// [`Outdated`] if the rest of the batch is not known any more. The next batch from the same plan is always known.
    pub fn more(&self, walk: &mut Walk, bytes: usize) -> Result<Vec<Bytes>, Outdated> {
        walk.more(&self.plans, bytes)
    }

    /// The node's whole plan as a value; `None` if there is no such node.
    pub fn plan(&self, node: &str) -> Option<NodePlan> {
        let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
        let current = plans.nodes.get(node)?;
        let entries = plans.entries(current);
        Some(NodePlan::from_entries(
            entries.map(|(key, e)| (key, e.hash, e.entry)),
        ))
    }
}

fn replace_if_other(marks: &watch::Sender<BTreeMap<Kind, Mark>>, by: &BTreeMap<Kind, Mark>) {
    marks.send_if_modified(|known| {
        let differs = known != by;
        if differs {
            known.clone_from(by);
        }
        differs
    });
}

impl Plans {
    fn replace(&mut self, id: ServiceId, planned: Option<Arc<PlannedService>>) {
        let old = self.services.get(&id).cloned();
        let number = match &old {
            Some(old) => old.number,
            None => self.numbered.free(),
        };
        let version = self.version;
        let encode = |planned| EncodedService::new(&id, number, version, planned, old.as_deref());
        let new = planned.map(|planned| Arc::new(encode(planned)));
        self.sums.replace(number, old.as_deref(), new.as_deref());
        self.numbered.put(number, new.clone());
        let same_ports = old
            .as_ref()
            .zip(new.as_ref())
            .is_some_and(|(old, new)| Arc::ptr_eq(old.ports(), new.ports()));
        match new {
            Some(new) => drop(self.services.insert(id.clone(), new)),
            None => drop(self.services.remove(&id)),
        }
        let gone = !self.services.contains_key(&id);
        self.changed.note(&id, self.version, gone);
        let was = Was {
            number,
            service: old,
        };
        self.history.push(self.version, id, was, same_ports);
    }

    fn replace_node(&mut self, name: Arc<str>, entry: Option<Arc<NodeEntry>>) {
        let old = match entry {
            Some(entry) => {
                // Before the old node is removed, so that the sum of a zone with one node is not recomputed for each
                // change of it.
                self.sums.add_node(&entry, self.services.values());
                self.node_addresses.add(&entry.addresses);
                self.nodes.insert(name, Arc::new(EncodedNode::new(entry)))
            }
            None => self.nodes.remove(&name),
        };
        if let Some(old) = old {
            self.sums.remove_node(&old.value);
            self.node_addresses.remove(&old.value.addresses);
        }
    }

    /// The hashes of a node's plan.
    fn hashes(&self, node: &EncodedNode) -> BucketHashes {
        self.sums.of(node, |number| self.numbered.get(number))
    }

    fn entries(&self, node: &EncodedNode) -> impl Iterator<Item = (EntryKey, EncodedEntry)> {
        let own = (EntryKey::Node, node.encoded.clone());
        let services = self.services.values();
        std::iter::once(own).chain(services.flat_map(|service| service.entries_for(&node.value)))
    }
}

/// Services by numbers, which take little memory in the references of thousands of nodes.
#[derive(Debug, Clone, Default)]
struct Numbered {
    services: Vec<Option<Arc<EncodedService>>>,
    free: Vec<u32>,
}

impl Numbered {
    /// An unused number.
    fn free(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.services.push(None);
            u32::try_from(self.services.len() - 1).unwrap_or(u32::MAX)
        })
    }

    fn put(&mut self, number: u32, service: Option<Arc<EncodedService>>) {
        if service.is_none() {
            self.free.push(number);
        }
        if let Some(place) = self.services.get_mut(number as usize) {
            *place = service;
        }
    }

    fn get(&self, number: u32) -> Option<&Arc<EncodedService>> {
        self.services.get(number as usize)?.as_ref()
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<EncodedService>> {
        self.services.iter().flatten()
    }
}
