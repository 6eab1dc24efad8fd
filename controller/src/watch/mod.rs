//! The Kubernetes API as a source: one list and watch for each kind, five in all.
//!
//! Touches: the API server, for reading. Objects are handed on in our own nouns, so fields that
//! nobody reads take no memory. A broken object is named and passed over; it stops no watch. A
//! server that goes away is waited for, and what was listed anew replaces what was known (S-191).

mod all;
mod follow;
mod kind;
mod mark;
mod object;
mod once;
mod problem;
mod triggers;

pub use kind::Kind;
pub use mark::Mark;
pub use once::{Everything, everything};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use kube::Client;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use crate::object::{Found, ObjectId};

/// Events on their way to the engine. A full queue holds the watches back, and the server keeps
/// what it has not sent.
const QUEUE: usize = 1024;

/// What a watch saw.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// These are all objects of a kind; what is not among them is gone.
    All {
        /// The kind.
        kind: Kind,
        /// Those that could be read.
        objects: Vec<Found>,
        /// Those that are there and could not be read, with what is wrong.
        unreadable: Vec<(ObjectId, String)>,
    },
    /// An object is there, new or changed.
    Present(Box<Found>),
    /// An object is there and cannot be read: the field, what is wrong, what to check next.
    Unreadable(ObjectId, String),
    /// An object is gone.
    Gone(ObjectId),
    /// How far the kind was read with all that came before.
    Read(Kind, Mark),
    /// What is told next comes alone, and not with a list.
    Came {
        /// When.
        at: SystemTime,
        /// When what it tells of happened, if it says so.
        triggered: Option<SystemTime>,
    },
}

/// What one answer of the API server contains, with how far its kind was read. It is taken in as a whole: an agent that
/// had a plan without how far its objects were read would go back to an older plan at a controller that lags behind.
pub type Answer = Vec<Seen>;

/// Asks watches to list again.
#[derive(Debug, Clone, Default)]
pub struct Relist(BTreeMap<Kind, Arc<Notify>>);

impl Relist {
    fn of_all() -> Self {
        Self(Kind::ALL.map(|kind| (kind, Arc::default())).into())
    }

    /// Lists all of a kind by a consistent read, as soon as may be.
    pub fn ask(&self, kind: Kind) {
        if let Some(asked) = self.0.get(&kind) {
            asked.notify_one();
        }
    }
}

/// Watches that run; they end when this is dropped.
#[derive(Debug)]
pub struct Watches {
    tasks: JoinSet<()>,
    relist: Relist,
}

impl Watches {
    /// Asks them to list again.
    pub fn relist(&self) -> Relist {
        self.relist.clone()
    }

    /// Waits until one of them has ended, which none does by itself while somebody listens.
    pub async fn ended(&mut self) {
        drop(self.tasks.join_next().await);
    }
}

/// Starts one watch of each kind. What they see comes out of the receiver.
pub fn start(client: &Client) -> (Watches, mpsc::Receiver<Answer>) {
    let (seen, receiver) = mpsc::channel(QUEUE);
    let mut tasks = JoinSet::new();
    let relist = Relist::of_all();
    for (kind, asked) in &relist.0 {
        tasks.spawn(follow::run(
            client.clone(),
            *kind,
            seen.clone(),
            asked.clone(),
        ));
    }
    (Watches { tasks, relist }, receiver)
}
