//! The Kubernetes API as a source: one list and watch for each of the five kinds.
//!
//! Reads from the API server. Objects are converted to the planner's model at once, so fields that no plan depends on
//! take no memory. An invalid object is reported and skipped; it does not stop the watch. When the API server does not
//! answer, the watch waits and lists again, and the list replaces what was known before (S-191).

mod all;
mod collection;
mod end;
mod follow;
mod mark;
mod object;
mod once;
mod problem;
mod relists;
mod triggers;

pub use collection::Collection;
pub use mark::Mark;
pub use once::{Everything, everything};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use kube::Client;
use portolan_planner::model::{Kind, Object, ObjectId};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::relists::Asked;
use crate::freshness::Freshness;

/// Capacity of the queue of responses for the engine. A full queue delays the watches; the API server keeps what it
/// has not sent.
const QUEUE_CAPACITY: usize = 1024;

/// The content of one response of the API server, and how far its kind was read. Both are applied together: an agent
/// that had a plan without its marks would accept an older plan from a controller that lags behind.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The kind that is watched.
    pub kind: Kind,
    /// What changed; `None` for a bookmark.
    pub update: Option<ObjectUpdate>,
    /// How far the kind was read, this response included.
    pub mark: Mark,
    /// When a single object arrived; `None` for lists and bookmarks.
    pub arrival: Option<Arrival>,
}

/// A change of objects of one kind.
#[derive(Debug, Clone, PartialEq)]
pub enum ObjectUpdate {
    /// A list: every object that it does not contain was deleted.
    All {
        /// Objects that could be read.
        objects: Vec<Object>,
        /// Objects that could not be read: the field, the problem and the next check.
        unreadable: Vec<(ObjectId, String)>,
    },
    /// An object was created or changed.
    Present(Box<Object>),
    /// An object was created or changed and cannot be read: the field, the problem and the next check.
    Unreadable(ObjectId, String),
    /// An object was deleted.
    Deleted(ObjectId),
}

/// When an object arrived, for traces and latency metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When the controller received it.
    pub at: SystemTime,
    /// When the change behind it happened, if the object says so (S-187).
    pub triggered: Option<SystemTime>,
}

/// Asks watches to list again.
#[derive(Debug, Clone, Default)]
pub struct Relist(BTreeMap<Kind, Asked>);

impl Relist {
    fn of_all() -> Self {
        Self(Kind::ALL.map(|kind| (kind, Asked::default())).into())
    }

    /// Requests a list of a kind by a consistent read. The watch of the kind performs it, for all requests at a time,
    /// and rarely: a list of a large cluster is expensive.
    pub fn ask(&self, kind: Kind) {
        if let Some(asked) = self.0.get(&kind) {
            asked.ask();
        }
    }
}

/// The running watches; they end when this is dropped.
#[derive(Debug)]
pub struct Watches {
    tasks: JoinSet<()>,
    relist: Relist,
}

impl Watches {
    /// Requests new lists from these watches.
    pub fn relist(&self) -> Relist {
        self.relist.clone()
    }

    /// Waits until one of the watches has ended. None ends while the receiver exists.
    pub async fn ended(&mut self) {
        drop(self.tasks.join_next().await);
    }
}

/// Starts one watch of each kind. The receiver returns their responses.
pub fn start(client: &Client, freshness: &Arc<Freshness>) -> (Watches, mpsc::Receiver<Answer>) {
    let (answers, receiver) = mpsc::channel(QUEUE_CAPACITY);
    let mut tasks = JoinSet::new();
    let relist = Relist::of_all();
    for (kind, asked) in &relist.0 {
        tasks.spawn(follow::run(
            client.clone(),
            *kind,
            answers.clone(),
            asked.clone(),
            freshness.clone(),
        ));
    }
    (Watches { tasks, relist }, receiver)
}
