//! Manifests as a source of objects.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use portolan_planner::model::{Event, Object, ObjectId};
use tracing::{error, info, warn};

use super::folder::{Folder, Scan};
use super::{Engine, Names};
use crate::manifests::{Problem, Severity};
use crate::store::cause::ChangeTimes;

/// Interval between two scans of the manifests. A scan costs one system call per file.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Follows a folder of manifests, or one file.
#[derive(Debug)]
pub struct ManifestSource {
    engine: Engine,
    folder: Folder,
    objects: BTreeMap<ObjectId, Arc<Object>>,
    /// The problems that were logged and still exist.
    logged: BTreeSet<String>,
}

impl ManifestSource {
    /// Creates a source that sends the objects in `manifests` to the engine.
    pub fn new(engine: Engine, manifests: PathBuf) -> Self {
        Self {
            engine,
            folder: Folder::new(manifests),
            objects: BTreeMap::new(),
            logged: BTreeSet::new(),
        }
    }

    /// Scans the manifests until the sender of `stopped` is dropped.
    pub fn follow(mut self, stopped: &Receiver<()>) {
        loop {
            self.look();
            match stopped.recv_timeout(POLL_INTERVAL) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Scans the manifests once, and publishes if something changed.
    pub fn look(&mut self) {
        let freshness = self.engine.freshness();
        let _turn = freshness.turn();
        let start = Instant::now();
        match self.folder.scan() {
            Ok(None) => {}
            Ok(Some(scan)) => self.take_in(scan, start),
            Err(error) => {
                let path = self.folder.path().display();
                let next = if self.engine.published {
                    "keeping the plans"
                } else {
                    "waiting for it"
                };
                let message = format!("{path}: {error}; {next}");
                if self.logged.insert(message.clone()) {
                    warn!("{message}");
                }
            }
        }
    }

    fn take_in(&mut self, scan: Scan, start: Instant) {
        self.report(&scan.problems);
        if !self.engine.published && scan.is_incomplete {
            // A plan without the unreadable objects would remove Services from nodes that had them before this
            // program started (S-183).
            warn!(
                "no plan is published until all files and the ProxyConfig can be read; nodes keep what they \
                 have"
            );
            return;
        }
        if !self.engine.published && scan.objects.is_empty() {
            info!(path = %self.folder.path().display(), "no manifests yet; waiting for them");
            return;
        }
        let (events, changed) = difference(&self.objects, &scan.objects);
        self.objects = scan.objects;
        self.engine
            .plan(events, &changed, start, ChangeTimes::default());
    }

    /// Logs new problems.
    fn report(&mut self, problems: &[Problem]) {
        let mut logged = BTreeSet::new();
        for problem in problems {
            let text = problem.to_string();
            if !self.logged.contains(&text) {
                match problem.severity {
                    Severity::Warning => warn!("{text}"),
                    Severity::LeftOut | Severity::Unreadable => error!("{text}"),
                }
            }
            logged.insert(text);
        }
        self.logged = logged;
    }
}

/// The events that lead from one set of objects to another, and a short description of them.
fn difference(
    old: &BTreeMap<ObjectId, Arc<Object>>,
    new: &BTreeMap<ObjectId, Arc<Object>>,
) -> (Vec<Event>, String) {
    let mut events = Vec::new();
    let mut names = Names::default();
    for (id, found) in new {
        if old.get(id) != Some(found) {
            events.push(found.present());
            names.add(|| id.to_string());
        }
    }
    for id in old.keys().filter(|id| !new.contains_key(id)) {
        events.push(id.removed());
        names.add(|| format!("{id} (gone)"));
    }
    (events, names.in_words())
}
