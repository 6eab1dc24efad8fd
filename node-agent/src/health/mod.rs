//! What a node says of its health. The stream tells what came, the programmer what a pass has put in
//! force, and sockets ask: everything is under one lock that nobody holds for longer than it takes to
//! copy a few values, so counts and ports change together (S-141).
//!
//! What is answered about Services is what the last pass took, whatever else failed in it (S-145), and
//! never what has only been received.

mod answer;
mod checks;
mod facts;
mod progress;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use portolan_plan::{Family, NodeEntry, ServiceId, Settings};
use tokio::sync::watch;
use tracing::warn;

pub use checks::Checks;
pub use facts::{Facts, FactsChange, NoLocal, TrafficPolicy};
pub use progress::{FamilyState, Moment, Progress};

use crate::http::{Answer, Page, Place};
use crate::metrics::{Changes, Counters};

/// Tells the time.
pub type Clock = Box<dyn Fn() -> Moment + Send + Sync>;

/// What the health of this node is made of.
pub struct Health {
    clock: Clock,
    state: Mutex<State>,
    wanted: watch::Sender<Wanted>,
    closed: watch::Sender<BTreeSet<String>>,
    unwritten: watch::Sender<BTreeSet<String>>,
    /// What is counted for good.
    pub(crate) counters: Counters,
}

#[derive(Debug, Default)]
struct State {
    progress: Progress,
    facts: Facts,
    /// What the plan in force says of the node; `None` before a first one.
    node: Option<Arc<NodeEntry>>,
    /// The first generation of the plan that came from a controller.
    received: Option<u64>,
    /// The generation of the last pass.
    taken: u64,
}

impl State {
    /// Whether what is in force came from a controller since the program started: else pods may have
    /// gone meanwhile, and others have got their addresses.
    fn is_live(&self) -> bool {
        self.received.is_some_and(|first| self.taken >= first)
    }
}

/// Passes, and how often they have changed where to listen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// How many passes there were.
    pub passes: u64,
    /// How often something else was wanted after one.
    pub moved: u64,
}

/// A pass that ended.
#[derive(Debug)]
pub struct Passed {
    /// The generation of the plan that it had.
    pub generation: u64,
    /// What that says of the node.
    pub node: Arc<NodeEntry>,
    /// Whether that was all of a plan. What is boot-critical of one on disk makes no node ready.
    pub complete: bool,
    /// What it says of Services.
    pub facts: FactsChange,
    /// The families in which something failed.
    pub failed_families: BTreeSet<Family>,
    /// How often rules of a family could not be loaded.
    pub unloaded_rules: BTreeMap<Family, u64>,
    /// Operations that were made.
    pub operations: usize,
    /// Operations that failed.
    pub failed: usize,
    /// How long it took.
    pub took: Duration,
}

impl Default for Health {
    /// By the clocks of the system.
    fn default() -> Self {
        let started = Instant::now();
        Self::new(Box::new(move || Moment {
            running: started.elapsed(),
            wall: Timestamp::now(),
        }))
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").finish_non_exhaustive()
    }
}

impl Health {
    /// Nothing is in force yet.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            state: Mutex::default(),
            wanted: watch::Sender::default(),
            closed: watch::Sender::default(),
            unwritten: watch::Sender::default(),
            counters: Counters::default(),
        }
    }

    /// This generation of the plan was received from a controller, with so many changes.
    pub fn queued(&self, generation: u64, changes: Changes) {
        let now = (self.clock)();
        let mut state = self.lock();
        state.progress.queued(generation, now.running);
        state.received.get_or_insert(generation);
        drop(state);
        self.counters.queued(generation, changes, now);
    }

    /// A pass ended.
    pub fn passed(&self, pass: Passed) {
        let now = (self.clock)();
        self.counters.passed(&pass, now);
        let limit = pass.node.settings.sync.period.as_duration() * 2;
        let mut state = self.lock();
        let (generation, failed) = (pass.generation, &pass.failed_families);
        if pass.complete {
            state.progress.finished(generation, failed, limit, now);
        }
        let mut moved = state.facts.follow(pass.facts);
        let places =
            |node: &NodeEntry| (node.settings.healthz.clone(), node.settings.metrics.clone());
        moved |= state.node.as_deref().map(places) != Some(places(&pass.node));
        state.node = Some(pass.node);
        state.taken = generation;
        drop(state);
        self.wanted.send_modify(|wanted| {
            wanted.passes += 1;
            wanted.moved += u64::from(moved);
        });
    }

    /// News of where to listen.
    pub fn wanted(&self) -> watch::Receiver<Wanted> {
        self.wanted.subscribe()
    }

    /// Where to listen. Before a first plan that is where most plans want it, so that the node says
    /// already that it is not ready (S-148).
    pub(crate) fn places(&self) -> BTreeSet<Place> {
        let state = self.lock();
        let settings = state.node.as_ref().map(|node| node.settings.clone());
        let Settings {
            healthz, metrics, ..
        } = settings.unwrap_or_default();
        let checks = state.facts.checks.ports();
        let checks = checks.into_iter().flat_map(Place::of_check);
        checks
            .chain(Place::of_settings(&healthz, Page::Node))
            .chain(Place::of_settings(&metrics, Page::Metrics))
            .collect()
    }

    /// What cannot be listened on, in words, whenever that changes.
    pub fn closed(&self) -> watch::Receiver<BTreeSet<String>> {
        self.closed.subscribe()
    }

    /// Says what cannot be listened on.
    pub(crate) fn set_closed(&self, closed: BTreeSet<String>) {
        self.closed.send_if_modified(|told| {
            let differs = *told != closed;
            *told = closed;
            differs
        });
    }

    /// Which kernel settings cannot be written, in words, whenever that changes.
    pub fn unwritten(&self) -> watch::Receiver<BTreeSet<String>> {
        self.unwritten.subscribe()
    }

    /// Says which kernel settings cannot be written.
    pub(crate) fn set_unwritten(&self, unwritten: BTreeSet<String>) {
        self.unwritten.send_if_modified(|told| {
            let differs = *told != unwritten;
            for setting in unwritten.difference(told) {
                warn!(%setting, "a kernel setting is not as it should be; Services are served all the same");
            }
            *told = unwritten;
            differs
        });
    }

    /// Whose health check port this is.
    pub(crate) fn service(&self, port: u16) -> Option<ServiceId> {
        let state = self.lock();
        let (service, _) = state.facts.checks.get(port)?;
        Some(service.clone())
    }

    /// The answer of a health check port. Whether the node is about to go does not matter for it
    /// (S-140); before a plan came from a controller there is nobody.
    pub fn check(&self, port: u16, family: Family) -> Answer {
        let now = (self.clock)();
        let state = self.lock();
        let healthy = state.progress.is_healthy(now.running);
        let Some((service, counts)) = state.facts.checks.get(port) else {
            return answer::no_check();
        };
        let count = match family {
            _ if !state.is_live() => 0,
            Family::Ipv4 => counts.ipv4,
            Family::Ipv6 => counts.ipv6,
        };
        answer::check(service, count, healthy)
    }

    /// The answer of `/healthz`: whether balancers should send traffic here.
    pub fn healthz(&self) -> Answer {
        let now = (self.clock)();
        let state = self.lock();
        let eligible = state.node.as_ref().is_some_and(|node| node.eligible);
        let answer = answer::node(&state.progress, Some(eligible), now);
        self.counters.healthz(answer.status());
        answer
    }

    /// The answer of `/livez`: whether this program does its work.
    pub fn livez(&self) -> Answer {
        let now = (self.clock)();
        let answer = answer::node(&self.lock().progress, None, now);
        self.counters.livez(answer.status());
        answer
    }

    /// The settings in force; `None` before a first plan.
    pub(crate) fn settings(&self) -> Option<Settings> {
        let node = self.lock().node.clone();
        node.map(|node| node.settings.clone())
    }

    /// Services that have no endpoint on this node, though their policy is Local.
    pub(crate) fn no_local(&self) -> NoLocal {
        self.lock().facts.no_local.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each value is replaced whole, so one that a panicking thread left is sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
