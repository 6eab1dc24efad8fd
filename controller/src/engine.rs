//! Holds the planner: manifests in, plans out.
//!
//! One thread owns everything here, so nothing is locked. Touches: the manifests for reading, the
//! clock for waiting and measuring, the folder of plans for writing.

mod folder;
mod plans_dir;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use portolan_planner::model::Event;
use portolan_planner::{Planner, Update};
use tracing::{error, info, warn};

use crate::manifests::{Found, ObjectId, Problem, Severity};
use crate::store::Store;
use folder::{Folder, Scan};
use plans_dir::PlansDir;

/// How often the manifests are looked at. A look costs one call for each file.
const POLL: Duration = Duration::from_millis(100);

/// Follows manifests and publishes the plans made from them.
#[derive(Debug)]
pub struct Engine {
    folder: Folder,
    plans_dir: Option<PlansDir>,
    store: Arc<Store>,
    planner: Planner,
    objects: BTreeMap<ObjectId, Arc<Found>>,
    published: bool,
    /// What was said already and is still true.
    said: BTreeSet<String>,
}

impl Engine {
    /// Follows a folder or a file; plans go to the store, and as files into a folder if one is
    /// given.
    pub fn new(manifests: PathBuf, plans_dir: Option<PathBuf>, store: Arc<Store>) -> Self {
        Self {
            folder: Folder::new(manifests),
            plans_dir: plans_dir.map(PlansDir::new),
            store,
            planner: Planner::default(),
            objects: BTreeMap::new(),
            published: false,
            said: BTreeSet::new(),
        }
    }

    /// Looks at the manifests until the other end of `stopped` is gone.
    pub fn follow(mut self, stopped: &Receiver<()>) {
        loop {
            self.look();
            match stopped.recv_timeout(POLL) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Looks at the manifests once; publishes if something changed.
    pub fn look(&mut self) {
        let start = Instant::now();
        match self.folder.scan() {
            Ok(None) => {}
            Ok(Some(scan)) => self.take_in(scan, start),
            Err(error) => {
                let path = self.folder.path().display();
                let next = if self.published {
                    "keeping the plans"
                } else {
                    "waiting for it"
                };
                let message = format!("{path}: {error}; {next}");
                if self.said.insert(message.clone()) {
                    warn!("{message}");
                }
            }
        }
    }

    fn take_in(&mut self, scan: Scan, start: Instant) {
        self.report(&scan.problems);
        if !self.published && scan.is_incomplete {
            // A plan without what cannot be read would take Services away from nodes that have
            // them since before this program started (S-183).
            warn!(
                "no plan is published before all files and the ProxyConfig can be read once; nodes keep what they have"
            );
            return;
        }
        if !self.published && scan.objects.is_empty() {
            info!(path = %self.folder.path().display(), "no manifests yet; waiting for them");
            return;
        }
        let (events, changed) = difference(&self.objects, &scan.objects);
        self.objects = scan.objects;
        let update = self.planner.apply(events);
        if update.is_empty() && self.published {
            return;
        }
        let (services, nodes) = (update.services.len(), update.nodes.len());
        self.publish(update);
        let milliseconds = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        info!(changed, services, nodes, milliseconds, "planned");
    }

    fn publish(&mut self, update: Update) {
        self.store.publish(update);
        self.published = true;
        if let Some(plans_dir) = &mut self.plans_dir
            && let Err(error) = plans_dir.write(&self.planner)
        {
            warn!("{error}");
        }
    }

    /// Logs what was not true before.
    fn report(&mut self, problems: &[Problem]) {
        let mut said = BTreeSet::new();
        for problem in problems {
            let text = problem.to_string();
            if !self.said.contains(&text) {
                match problem.severity {
                    Severity::Warning => warn!("{text}"),
                    Severity::LeftOut | Severity::Unreadable => error!("{text}"),
                }
            }
            said.insert(text);
        }
        self.said = said;
    }
}

/// How many objects a log line names.
const NAMED: usize = 3;

/// The events that lead from one set of objects to another, and a few words about them.
fn difference(
    old: &BTreeMap<ObjectId, Arc<Found>>,
    new: &BTreeMap<ObjectId, Arc<Found>>,
) -> (Vec<Event>, String) {
    let mut events = Vec::new();
    let mut names = Vec::new();
    for (id, found) in new {
        if old.get(id) != Some(found) {
            events.push(found.present());
            names.push(id.to_string());
        }
    }
    for id in old.keys().filter(|id| !new.contains_key(id)) {
        events.push(id.removed());
        names.push(format!("{id} (gone)"));
    }
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let mut words = names.join(", ");
    if more > 0 {
        words += &format!(" and {more} more");
    }
    (events, words)
}
