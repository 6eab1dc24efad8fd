//! Health of the node: what `healthCheckNodePort`, `/healthz` and `/livez` answer on the sockets of `http`. The stream
//! reports received changes, the programmer reports passes, and HTTP sockets read the result. All state is behind one
//! lock, which is held only to copy a few values, so counts and ports change together (S-141).
//!
//! Responses about Services follow the plan of the last pass, regardless of other failures in it (S-145), and never a
//! plan that was received but not yet applied.

mod answer;
mod checks;
mod counters;
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
pub use counters::{Changes, Counters};
pub use facts::{Facts, FactsChange, NoLocal, TrafficPolicy};
pub use progress::{FamilyState, Moment, Progress};

use crate::page::{Answer, Page, Place};

/// Health check ports on which the agent cannot listen, by Service, with the reason for each address.
pub type ClosedChecks = BTreeSet<(ServiceId, String)>;

/// Source of the current time.
pub type Clock = Box<dyn Fn() -> Moment + Send + Sync>;

/// The health of this node.
pub struct Health {
    clock: Clock,
    state: Mutex<State>,
    pass_counts: watch::Sender<PassCounts>,
    closed: watch::Sender<BTreeSet<String>>,
    closed_checks: watch::Sender<ClosedChecks>,
    unwritten: watch::Sender<BTreeSet<String>>,
    /// Counters since the start of the program.
    pub(crate) counters: Counters,
}

#[derive(Debug, Default)]
struct State {
    progress: Progress,
    facts: Facts,
    /// The node's entry in the current plan; `None` before the first plan.
    node: Option<Arc<NodeEntry>>,
    /// The first plan generation that was received from a controller.
    received: Option<u64>,
    /// The plan generation of the last pass.
    taken: u64,
}

impl State {
    /// Whether the current plan came from a controller since the program started. In an older plan, pods may be gone
    /// and their addresses reused.
    fn is_live(&self) -> bool {
        self.received.is_some_and(|first| self.taken >= first)
    }
}

/// Number of passes, and of changes of the listen addresses by them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PassCounts {
    /// Number of passes.
    pub passes: u64,
    /// Number of passes that changed the wanted listen addresses.
    pub moved: u64,
}

/// The report of a finished pass.
#[derive(Debug)]
pub struct PassReport {
    /// The generation of its plan.
    pub generation: u64,
    /// The node's entry in that plan.
    pub node: Arc<NodeEntry>,
    /// Whether it covered a complete plan. The boot-critical part of a saved plan does not make a node ready.
    pub complete: bool,
    /// The changed facts about Services.
    pub facts: FactsChange,
    /// The families with failures.
    pub failed_families: BTreeSet<Family>,
    /// Number of failures to load the rules of a family.
    pub unloaded_rules: BTreeMap<Family, u64>,
    /// Number of operations.
    pub operations: usize,
    /// Number of failed operations.
    pub failed: usize,
    /// Its duration.
    pub took: Duration,
}

impl Default for Health {
    /// Uses the clocks of the system.
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
    /// Health of a node without a plan.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            state: Mutex::default(),
            pass_counts: watch::Sender::default(),
            closed: watch::Sender::default(),
            closed_checks: watch::Sender::default(),
            unwritten: watch::Sender::default(),
            counters: Counters::default(),
        }
    }

    /// Records that this generation of the plan was received from a controller.
    pub fn queued(&self, generation: u64, changes: Changes) {
        let now = (self.clock)();
        let mut state = self.lock();
        state.progress.queued(generation, now.running);
        state.received.get_or_insert(generation);
        drop(state);
        self.counters.queued(generation, changes, now);
    }

    /// Records a finished pass.
    pub fn passed(&self, pass: PassReport) {
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
        self.pass_counts.send_modify(|counts| {
            counts.passes += 1;
            counts.moved += u64::from(moved);
        });
    }

    /// Notifies of passes and of changed listen addresses.
    pub fn pass_counts(&self) -> watch::Receiver<PassCounts> {
        self.pass_counts.subscribe()
    }

    /// The wanted listen addresses. Before the first plan these are the defaults, so that the node already reports
    /// that it is not ready (S-148).
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

    /// Notifies of changes of the listen failures of the node's own pages, as messages.
    pub fn closed(&self) -> watch::Receiver<BTreeSet<String>> {
        self.closed.subscribe()
    }

    /// Notifies of changes of the listen failures of health check ports. A user chooses the port of a Service, so that
    /// it is in use says nothing about the node (S-229).
    pub fn closed_checks(&self) -> watch::Receiver<ClosedChecks> {
        self.closed_checks.subscribe()
    }

    /// Sets the listen failures.
    pub(crate) fn set_closed(&self, closed: BTreeSet<String>, closed_checks: ClosedChecks) {
        publish(&self.closed, closed);
        publish(&self.closed_checks, closed_checks);
    }

    /// Notifies of changes of the kernel settings that cannot be written, as messages.
    pub fn unwritten(&self) -> watch::Receiver<BTreeSet<String>> {
        self.unwritten.subscribe()
    }

    /// Sets the kernel settings that cannot be written, and logs the new ones.
    pub(crate) fn set_unwritten(&self, unwritten: BTreeSet<String>) {
        self.unwritten.send_if_modified(|published| {
            let differs = *published != unwritten;
            for setting in unwritten.difference(published) {
                warn!(%setting, "a kernel setting is wrong; Services are served regardless");
            }
            *published = unwritten;
            differs
        });
    }

    /// The Service that has this health check port.
    pub(crate) fn service(&self, port: u16) -> Option<ServiceId> {
        let state = self.lock();
        let (service, _) = state.facts.checks.get(port)?;
        Some(service.clone())
    }

    /// The response of a health check port. It does not depend on whether the node is being removed (S-140). The
    /// count is 0 until a plan is received from a controller.
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

    /// The response of `/healthz`: whether load balancers should send traffic to this node.
    pub fn healthz(&self) -> Answer {
        let now = (self.clock)();
        let state = self.lock();
        let eligible = state.node.as_ref().is_some_and(|node| node.eligible);
        let answer = answer::node(&state.progress, Some(eligible), now);
        self.counters.healthz(answer.status());
        answer
    }

    /// The response of `/livez`: whether this program works.
    pub fn livez(&self) -> Answer {
        let now = (self.clock)();
        let answer = answer::node(&self.lock().progress, None, now);
        self.counters.livez(answer.status());
        answer
    }

    /// The current settings; `None` before the first plan.
    pub(crate) fn settings(&self) -> Option<Settings> {
        let node = self.lock().node.clone();
        node.map(|node| node.settings.clone())
    }

    /// The numbers of Services with policy `Local` and no endpoint on this node.
    pub(crate) fn no_local(&self) -> NoLocal {
        self.lock().facts.no_local.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each value is replaced as a whole, so the state is consistent even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets a value, and notifies if it differs from the previous one.
fn publish<T: PartialEq>(to: &watch::Sender<T>, value: T) {
    to.send_if_modified(|published| {
        let differs = *published != value;
        *published = value;
        differs
    });
}
