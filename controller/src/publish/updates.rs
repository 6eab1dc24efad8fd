//! Updates that the engine sends to the publisher. Sending is cheap and never blocks the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use portolan_plan::{NodeEntry, ServiceId};
use portolan_planner::{PlannedService, Update};
use tokio::sync::Notify;

use portolan_planner::model::ObjectId;

/// Sends planning results to the publisher.
#[derive(Debug, Clone)]
pub struct UpdateSender {
    inbox: Arc<Inbox>,
    wall: fn() -> SystemTime,
}

/// Updates that the publisher has not taken yet. A newer update of the same object replaces the older one.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    updates: Mutex<Updates>,
    notify: Notify,
}

/// Pending updates.
#[derive(Debug, Default)]
pub(super) struct Updates {
    /// Whether there is a complete plan.
    pub(super) complete: bool,
    /// Whether the publisher has already taken a complete plan.
    taken: bool,
    pub(super) services: BTreeMap<ServiceId, Option<Arc<PlannedService>>>,
    pub(super) nodes: BTreeSet<Arc<str>>,
    /// Node entries and the time at which they were planned. No agent was sent them before that time.
    pub(super) entries: BTreeMap<Arc<str>, PlannedEntry>,
    /// Nodes whose warnings may have changed, but whose plan has not.
    pub(super) read_again: BTreeSet<Arc<str>>,
}

/// The entry that a node receives about itself.
#[derive(Debug, Clone)]
pub(super) struct PlannedEntry {
    pub(super) entry: Arc<NodeEntry>,
    pub(super) since: SystemTime,
}

impl UpdateSender {
    pub(super) fn new(inbox: Arc<Inbox>, wall: fn() -> SystemTime) -> Self {
        Self { inbox, wall }
    }

    /// Records a planning result. Call it after the shared state contains the result. The first call, even with an
    /// empty update, means that everything was planned once; nothing is written before.
    pub fn changed(&self, update: &Update) {
        let since = (self.wall)();
        self.inbox.add(|updates| {
            for (name, entry) in &update.nodes {
                match entry.clone() {
                    Some(entry) => updates
                        .entries
                        .insert(name.clone(), PlannedEntry { entry, since }),
                    None => updates.entries.remove(name),
                };
            }
            updates.complete = true;
            let services = update.services.iter();
            updates
                .services
                .extend(services.map(|(id, planned)| (id.clone(), planned.clone())));
            updates.nodes.extend(update.nodes.keys().cloned());
        });
    }

    /// Records that an object became unreadable or readable again.
    pub fn read_again(&self, object: &ObjectId) {
        if let ObjectId::Node(node) = object {
            self.inbox.add(|updates| {
                updates.read_again.insert(node.clone());
            });
        }
    }
}

impl Inbox {
    fn add(&self, change: impl FnOnce(&mut Updates)) {
        change(&mut self.updates.lock().unwrap_or_else(PoisonError::into_inner));
        self.notify.notify_one();
    }

    /// Waits for an update of a complete plan, and takes all pending updates.
    pub(super) async fn next(&self) -> Updates {
        loop {
            {
                let mut updates = self.updates.lock().unwrap_or_else(PoisonError::into_inner);
                let empty = updates.services.is_empty() && updates.nodes.is_empty();
                if updates.complete && !(empty && updates.read_again.is_empty() && updates.taken) {
                    let next = Updates {
                        complete: true,
                        taken: true,
                        ..Updates::default()
                    };
                    return std::mem::replace(&mut *updates, next);
                }
            }
            self.notify.notified().await;
        }
    }
}
