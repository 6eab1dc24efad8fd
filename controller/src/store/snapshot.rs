//! What a batch is made of, if the plans of later versions cannot provide it: all Services at one version, or those
//! that changed since a position that the history does not reach.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use portolan_plan::{EntryKey, Family, ListKey, NodeEntry, ScopeKind, ServiceId};

use super::encoded::EncodedService;
use super::history::Former;
use super::shared_plan::SharedPlan;
use super::step::{self, Piece};
use super::{Numbered, Plans};

/// Maximum number of changed Services that a batch keeps for a stream that is behind the history. With more, the whole
/// plan is sent.
const MAX_CHANGED_SERVICES: usize = 1000;

/// All Services at one version.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) version: u64,
    /// By number.
    services: Numbered,
    /// The numbers of the Services with entries for a node by name.
    naming: BTreeMap<Arc<str>, Vec<u32>>,
    /// What the nodes of each zone have in common.
    shared: Mutex<SharedPlans>,
}

/// By zone.
type SharedPlans = BTreeMap<Option<Arc<str>>, Arc<OnceLock<SharedPlan>>>;

/// The snapshot in use, which batches share.
#[derive(Debug, Default)]
pub(super) struct SharedSnapshot(Mutex<Weak<Snapshot>>);

impl Snapshot {
    /// All Services at the present version, or up to `lag` versions before if another batch uses that snapshot.
    pub(super) fn of(plans: &Plans, lag: u64) -> Arc<Self> {
        let mut shared = plans
            .snapshot
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let recent = |snapshot: &Arc<Self>| snapshot.version.saturating_add(lag) >= plans.version;
        if let Some(snapshot) = shared.upgrade().filter(recent) {
            return snapshot;
        }
        let fresh = Arc::new(Self {
            version: plans.version,
            services: plans.numbered.clone(),
            naming: plans.sums.naming().clone(),
            shared: Mutex::default(),
        });
        *shared = Arc::downgrade(&fresh);
        fresh
    }

    /// Calls `with` with what the nodes of this node's zone have in common. The first caller of a zone gathers it, which
    /// takes long; only callers of the same zone wait for it.
    pub(super) fn shared<T>(&self, node: &NodeEntry, with: impl FnOnce(&SharedPlan) -> T) -> T {
        let of_zone = {
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.entry(node.zone.clone()).or_default().clone()
        };
        with(of_zone.get_or_init(|| SharedPlan::new(node, self.services.iter())))
    }

    /// The Services with entries for a node by name.
    pub(super) fn naming(&self, node: &str) -> impl Iterator<Item = &Arc<EncodedService>> + Clone {
        let numbers = self.naming.get(node).into_iter().flatten();
        numbers.filter_map(|number| self.services.get(*number))
    }
}

/// The Services that changed since a position, in their present state.
#[derive(Debug)]
pub(super) struct Changes(pub(super) BTreeMap<ServiceId, ChangedService>);

/// A changed Service.
#[derive(Debug)]
pub(super) struct ChangedService {
    before: Former,
    now: Option<Arc<EncodedService>>,
}

impl Changes {
    /// The changes since a version; `None` if there are too many, or if some are unknown.
    pub(super) fn since(plans: &Plans, version: u64) -> Option<Self> {
        let changed = plans.history.changed_since(version)?;
        if changed.len() > MAX_CHANGED_SERVICES {
            return None;
        }
        let services = changed.into_iter().map(|(id, before)| {
            let now = plans.services.get(id).cloned();
            (id.clone(), ChangedService { before, now })
        });
        Some(Self(services.collect()))
    }
}

impl ChangedService {
    /// Adds the items that lead to its present entries for a node of the same zone. If its former state is forgotten,
    /// all its entries are sent, and those that it may have had are removed.
    pub(super) fn put(&self, id: &ServiceId, node: &NodeEntry, piece: &mut Piece) {
        let former = match &self.before {
            Former::Known(former) => {
                let step = step::step(former.as_ref(), self.now.as_ref(), node);
                return piece.add(&step);
            }
            Former::Forgotten(ports) => ports,
        };
        let entries = self.now.as_ref().map(|now| now.entries_for(node));
        let mut gone = possible_keys(id, former, node);
        for (key, entry) in entries.unwrap_or_default() {
            gone.remove(&key);
            piece.upsert(&entry);
        }
        for key in gone {
            piece.remove(&key);
        }
    }
}

/// All keys that the entries of a Service with these ports can have in the plan of a node.
fn possible_keys(
    id: &ServiceId,
    ports: &BTreeSet<Arc<str>>,
    node: &NodeEntry,
) -> BTreeSet<EntryKey> {
    let mut keys = BTreeSet::from([EntryKey::Head(id.clone()), EntryKey::Local(id.clone())]);
    let scopes = [
        ScopeKind::Cluster,
        ScopeKind::Zone,
        ScopeKind::Node,
        ScopeKind::Local,
    ];
    for port in ports {
        for family in Family::BOTH {
            keys.extend(scopes.map(|scope| {
                EntryKey::List(ListKey {
                    service: id.clone(),
                    port: port.clone(),
                    family,
                    scope: node.complete(scope),
                })
            }));
        }
    }
    keys
}
