//! Runs the planner: objects in, plans out.
//!
//! One thread owns everything here, and is the only writer of the shared state. Accesses: the clock for waiting and
//! measuring, the folder of plans for writing. Its sources access files or the API server.

mod cluster;
mod compact;
mod folder;
mod journal;
mod losses;
mod manifests;
mod plans_dir;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use portolan_planner::model::{Event, Moment, ObjectId};
use portolan_planner::{Reason, Update};
use tracing::field::display;
use tracing::{info, info_span, warn};

pub use cluster::ClusterSource;
pub use manifests::ManifestSource;

use crate::cluster_state::Shared;
use crate::freshness::Freshness;
use crate::store::Store;
use crate::store::cause::ChangeTimes;
use crate::telemetry::changes::{Change, Changes, SPANS};
use journal::Journal;
use plans_dir::PlansDir;

/// A notification for the listener.
#[derive(Debug, Clone, Copy)]
pub enum Notification<'a> {
    /// A planning result. The first one is sent even if it is empty: then everything was planned once.
    Planned(&'a Update),
    /// An object became unreadable or readable again.
    Readable(&'a ObjectId),
}

/// Called after the shared state contains the change.
pub type Listener = Box<dyn Fn(Notification<'_>) + Send>;

/// Plans the objects of a source and publishes the plans.
pub struct Engine {
    plans_dir: Option<PlansDir>,
    store: Arc<Store>,
    known: Shared,
    listener: Option<Listener>,
    changes: Changes,
    freshness: Arc<Freshness>,
    published: bool,
    journal: Journal,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("published", &self.published)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Creates an engine that writes plans to the store, and to files in `plans_dir` if it is given.
    pub fn new(known: Shared, store: Arc<Store>, plans_dir: Option<PathBuf>) -> Self {
        Self {
            plans_dir: plans_dir.map(PlansDir::new),
            store,
            known,
            listener: None,
            changes: Changes::default(),
            freshness: Arc::default(),
            published: false,
            journal: Journal::default(),
        }
    }

    /// The shared state, for readers.
    pub fn known(&self) -> Shared {
        self.known.clone()
    }

    /// Sets the listener for all notifications.
    #[must_use]
    pub fn with_listener(mut self, listener: Listener) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Records each change in `changes`.
    #[must_use]
    pub fn with_changes(mut self, changes: Changes) -> Self {
        self.changes = changes;
        self
    }

    /// Records each turn in `freshness`.
    #[must_use]
    pub fn with_freshness(mut self, freshness: Arc<Freshness>) -> Self {
        self.freshness = freshness;
        self
    }

    /// The age of the objects and of the present turn.
    pub fn freshness(&self) -> Arc<Freshness> {
        self.freshness.clone()
    }

    /// Plans the events since `start`, and publishes the difference. The first publication happens even without
    /// entries: agents then know that the plan is empty.
    fn plan(&mut self, events: Vec<Event>, changed: &str, start: Instant, times: ChangeTimes) {
        let change = self.changes.begin(times, changed, SystemTime::now());
        let now = moment(SystemTime::now());
        let span = change.part(info_span!(target: SPANS, "plan", objects = events.len()));
        let update = span.in_scope(|| {
            let update = self.known.write().planner.apply_at(events, now);
            self.report(&update);
            update
        });
        drop(span);
        if update.is_empty() && update.residents.is_empty() && self.published {
            return;
        }
        let (services, nodes) = (update.services.len(), update.nodes.len());
        let trace_id = change.traced().map(display);
        self.publish(update, change);
        let milliseconds = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        info!(changed, services, nodes, milliseconds, trace_id, "planned");
    }

    /// Logs warnings of the planner. Warnings of the readers were logged when the objects were read.
    fn report(&mut self, update: &Update) {
        self.journal.begin();
        for (id, planned) in &update.services {
            let reasons = planned.iter().flat_map(|planned| &planned.warnings);
            let reasons = reasons.map(|warning| &warning.reason);
            let found = reasons.filter(|reason| !matches!(reason, Reason::Ignored { .. }));
            let messages = found.map(ToString::to_string);
            self.journal.note(&ObjectId::Service(id.clone()), messages);
        }
        self.journal.end();
    }

    fn notify(&self, notification: Notification<'_>) {
        if let Some(listener) = &self.listener {
            listener(notification);
        }
    }

    fn publish(&mut self, update: Update, change: Change) {
        let (services, nodes) = (update.services.len(), update.nodes.len());
        self.notify(Notification::Planned(&update));
        let span = change.part(info_span!(target: SPANS, "encode", services, nodes));
        let cause = change.cause().clone();
        let version = span.in_scope(|| self.store.publish_since(update, Some(cause)));
        drop(span);
        change.published(version, services, nodes, SystemTime::now());
        self.published = true;
        if let Some(plans_dir) = &mut self.plans_dir
            && let Err(error) = plans_dir.write(&self.known.read().planner)
        {
            warn!("{error}");
        }
    }
}

/// A time in the unit of the model: whole seconds since the Unix epoch.
pub(crate) fn moment(time: SystemTime) -> Moment {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// The first few names of objects that changed, for a log line.
#[derive(Debug, Default)]
struct Names {
    first: Vec<String>,
    count: usize,
}

impl Names {
    /// Maximum number of objects that a log line names.
    const MAX_NAMES: usize = 3;

    fn add(&mut self, name: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < Self::MAX_NAMES {
            self.first.push(name());
        }
    }

    fn in_words(&self) -> String {
        let words = self.first.join(", ");
        match self.count - self.first.len() {
            0 => words,
            more => format!("{words} and {more} more"),
        }
    }
}
