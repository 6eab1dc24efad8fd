//! What the engine tells the publisher: cheap, and never held up by it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use portolan_plan::{NodeEntry, ServiceId};
use portolan_planner::{PlannedService, Update};
use tokio::sync::Notify;

use portolan_planner::model::ObjectId;

/// For whoever plans.
#[derive(Debug, Clone)]
pub struct Notes {
    inbox: Arc<Inbox>,
    wall: fn() -> SystemTime,
}

/// What was told and not looked at; of several words about one thing, the last.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    told: Mutex<Told>,
    news: Notify,
}

#[derive(Debug, Default)]
pub(super) struct Told {
    /// Whether there is a complete plan.
    pub(super) complete: bool,
    /// Whether somebody was told so.
    taken: bool,
    pub(super) services: BTreeMap<ServiceId, Option<Arc<PlannedService>>>,
    pub(super) nodes: BTreeSet<Arc<str>>,
    /// What nodes are told about themselves, and since when: nobody was sent it before.
    pub(super) given: BTreeMap<Arc<str>, Given>,
    /// Nodes of which only the warnings may have changed.
    pub(super) read_again: BTreeSet<Arc<str>>,
}

/// What a node is told about itself.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) entry: Arc<NodeEntry>,
    pub(super) since: SystemTime,
}

impl Notes {
    pub(super) fn new(inbox: Arc<Inbox>, wall: fn() -> SystemTime) -> Self {
        Self { inbox, wall }
    }

    /// Something was planned, after it can be seen in what the controller knows. The first call, be it
    /// about nothing, says that everything was planned once: nothing is written before.
    pub fn changed(&self, update: &Update) {
        let since = (self.wall)();
        self.inbox.tell(|told| {
            for (name, entry) in &update.nodes {
                match entry.clone() {
                    Some(entry) => told.given.insert(name.clone(), Given { entry, since }),
                    None => told.given.remove(name),
                };
            }
            told.complete = true;
            let services = update.services.iter();
            told.services
                .extend(services.map(|(id, planned)| (id.clone(), planned.clone())));
            told.nodes.extend(update.nodes.keys().cloned());
        });
    }

    /// An object cannot be read, or can be read again.
    pub fn read_again(&self, object: &ObjectId) {
        if let ObjectId::Node(node) = object {
            self.inbox.tell(|told| {
                told.read_again.insert(node.clone());
            });
        }
    }
}

impl Inbox {
    fn tell(&self, tell: impl FnOnce(&mut Told)) {
        tell(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner));
        self.news.notify_one();
    }

    /// Waits until something is told about a complete plan, and takes it.
    pub(super) async fn news(&self) -> Told {
        loop {
            {
                let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                let empty = told.services.is_empty() && told.nodes.is_empty();
                if told.complete && !(empty && told.read_again.is_empty() && told.taken) {
                    let next = Told {
                        complete: true,
                        taken: true,
                        ..Told::default()
                    };
                    return std::mem::replace(&mut *told, next);
                }
            }
            self.news.notified().await;
        }
    }
}
