//! Holds the current plan between the stream that updates it and the thread that programs the kernel. The latest
//! plan wins, so a slow kernel never causes a queue of plans. The thread is also woken when the node's network
//! changes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use portolan_plan::{
    BucketHashes, Entry, EntryKey, HashMismatch, NodePlan, PlanHash, ServiceId, StagedChanges,
};
use portolan_proto::TraceContext;
use portolan_proto::item::HeldList;

use crate::heartbeat::Heartbeat;
use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering};

/// The plan that an agent holds when it connects.
#[derive(Debug)]
pub struct Held {
    /// The hash of the received plan.
    pub hash: PlanHash,
    /// The hashes of its buckets.
    pub buckets: BucketHashes,
}

/// Maximum number of changed Services that are tracked. With more, a change counts as one of everything: reading the
/// complete plan is as fast then, and no previous state has to be kept.
const MAX_TRACKED_SERVICES: usize = 256;

/// The current plan, with a condition variable that signals changes.
#[derive(Debug, Default)]
pub struct PlanWatch {
    state: Mutex<State>,
    changed: Condvar,
    /// The steps of the thread that waits for plans.
    heartbeat: Heartbeat,
    /// Whether it waits. Without a lock, because the watchdog must not wait for a thread that hangs.
    waits: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    // Shared, so that a slow reader can keep it while the next one is built.
    plan: Arc<NodePlan>,
    generation: u64,
    source: Source,
    /// The trace of the last change.
    trace: Option<TraceContext>,
    taken: u64,
    change: Change,
    disturbed: bool,
    gone: BTreeSet<IpAddr>,
    /// Whether `gone` changed since the last wait.
    gone_changed: bool,
    stopped: bool,
}

/// Origin of a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Source {
    /// From disk, limited to the Services that the cluster needs to start.
    #[default]
    BootCritical,
    /// From disk, complete. The kernel may be newer, so nothing is removed that the plan does not contain (S-183).
    Disk,
    /// From a controller.
    Controller,
}

/// The changes of the plan since it was taken.
#[derive(Debug, Default)]
enum Change {
    /// Potentially everything.
    #[default]
    Everything,
    /// The touched Services, with their entries at the time when the plan was taken.
    Services {
        touched: BTreeSet<ServiceId>,
        before: NodePlan,
    },
}

impl Change {
    fn none() -> Self {
        Self::Services {
            touched: BTreeSet::new(),
            before: NodePlan::default(),
        }
    }

    /// Records changes that are about to be applied to the plan. Recording too many is harmless.
    fn note(&mut self, staged: &StagedChanges, plan: &NodePlan) {
        let Self::Services { touched, before } = self else {
            return;
        };
        let Some(services) = staged.services() else {
            *self = Self::Everything;
            return;
        };
        let fresh: Vec<_> = services.difference(touched).cloned().collect();
        if touched.len() + fresh.len() > MAX_TRACKED_SERVICES {
            *self = Self::Everything;
            return;
        }
        before.add_part(plan, &fresh);
        touched.extend(fresh);
    }
}

/// A plan that was taken.
#[derive(Debug)]
pub struct Taken {
    /// The generation of the plan; 0 before the first one.
    pub generation: u64,
    /// The hash of the complete plan, for a node that has its values in use in force.
    pub hash: PlanHash,
    /// The origin of the plan.
    pub source: Source,
    /// The trace of its last change.
    pub trace: Option<TraceContext>,
    /// The plan or its changes.
    pub what: TakenPlan,
}

/// A complete plan, or its changes.
#[derive(Debug)]
pub enum TakenPlan {
    /// The complete plan.
    Whole(Arc<NodePlan>),
    /// Only the Services that changed since the plan was last taken, before and after.
    Part {
        /// The changed Services.
        services: BTreeSet<ServiceId>,
        /// Their previous entries.
        before: NodePlan,
        /// Their current entries.
        after: NodePlan,
    },
}

impl State {
    fn taken(&mut self, what: TakenPlan) -> Taken {
        self.taken = self.generation;
        Taken {
            generation: self.generation,
            hash: hash_in_force(&self.plan),
            source: self.source,
            trace: self.trace,
            what,
        }
    }
}

/// The hash of a plan whose values in use are in force. Entries of Services that cannot be read are reported with their
/// Services, so they do not keep the rest of the plan from counting as in force (S-229).
fn hash_in_force(plan: &NodePlan) -> PlanHash {
    if plan.unread().all(|key| key.service().is_some()) {
        plan.hash()
    } else {
        plan.usable_hash()
    }
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// There is a plan that was not taken yet.
    Changed,
    /// The node's network or rules may have changed since they were read.
    Disturbed,
    /// The timeout has elapsed.
    TimedOut,
    /// The program is about to end.
    Stopped,
}

impl PlanWatch {
    /// Applies staged changes. Returns the new generation of the plan.
    ///
    /// # Errors
    /// [`HashMismatch`] if the result does not have the announced hash.
    pub fn commit(&self, staged: StagedChanges, expected: PlanHash) -> Result<u64, HashMismatch> {
        self.commit_traced(staged, expected, None)
    }

    /// As [`PlanWatch::commit`], for a change that belongs to a trace.
    ///
    /// # Errors
    /// See [`PlanWatch::commit`].
    pub(crate) fn commit_traced(
        &self,
        staged: StagedChanges,
        expected: PlanHash,
        trace: Option<TraceContext>,
    ) -> Result<u64, HashMismatch> {
        let mut state = self.lock();
        let State { plan, change, .. } = &mut *state;
        change.note(&staged, plan);
        Arc::make_mut(plan).apply(staged, expected)?;
        if state.source != Source::Controller {
            state.source = Source::Controller;
            // With a plan from disk nothing was removed, so a complete comparison is needed now.
            state.change = Change::Everything;
        }
        state.trace = trace;
        state.generation += 1;
        self.changed.notify_all();
        Ok(state.generation)
    }

    /// Sets a plan from disk, unless a controller has already sent one.
    pub fn restore_saved(&self, plan: NodePlan, source: Source) {
        let mut state = self.lock();
        if state.source == Source::Controller {
            return;
        }
        state.source = source;
        state.plan = Arc::new(plan);
        state.change = Change::Everything;
        state.generation += 1;
        self.changed.notify_all();
    }

    /// Whether a controller has sent a plan.
    pub fn is_live(&self) -> bool {
        self.lock().source == Source::Controller
    }

    /// The plan and its generation, if a controller sent it and it was taken.
    pub fn live(&self) -> Option<(u64, Arc<NodePlan>)> {
        let state = self.lock();
        let live = state.source == Source::Controller;
        let taken = live && state.taken == state.generation;
        taken.then(|| (state.generation, state.plan.clone()))
    }

    /// Description of the held plan, to be sent to a controller with this watermark; `None` before the first plan.
    pub(crate) fn held(&self) -> Option<Held> {
        let state = self.lock();
        let plan = &state.plan;
        (!plan.is_empty()).then(|| Held {
            hash: plan.hash(),
            buckets: plan.bucket_hashes(),
        })
    }

    /// The list with this key; `None` unless its last received bytes could be decoded.
    pub(crate) fn list(&self, key: &EntryKey) -> Option<HeldList> {
        let state = self.lock();
        match state.plan.held(key)? {
            (hash, Some(Entry::List(list))) => Some((hash, list.clone())),
            _ => None,
        }
    }

    /// The hash of the held plan; `None` before the first one.
    pub fn hash(&self) -> Option<PlanHash> {
        let state = self.lock();
        (!state.plan.is_empty()).then(|| state.plan.hash())
    }

    /// Reads the plan without taking it.
    pub fn peek<T>(&self, read: impl FnOnce(&NodePlan) -> T) -> T {
        read(&self.lock().plan)
    }

    /// The current plan, for slow readers.
    pub fn plan(&self) -> Arc<NodePlan> {
        self.lock().plan.clone()
    }

    /// Takes the complete plan. A slow reader does not block newer plans.
    pub fn take(&self) -> Taken {
        let mut state = self.lock();
        state.change = Change::none();
        let plan = state.plan.clone();
        state.taken(TakenPlan::Whole(plan))
    }

    /// Takes the changes since the plan was last taken, or the complete plan if the changes are unknown or too many.
    pub fn take_changed(&self) -> Taken {
        let mut state = self.lock();
        let change = std::mem::replace(&mut state.change, Change::none());
        let what = match change {
            Change::Everything => TakenPlan::Whole(state.plan.clone()),
            Change::Services { touched, before } => TakenPlan::Part {
                after: state.plan.part(&touched),
                services: touched,
                before,
            },
        };
        state.taken(what)
    }

    /// Records that the node's network or rules may have changed, and wakes the waiting thread.
    pub fn disturb(&self) {
        self.lock().disturbed = true;
        self.changed.notify_all();
    }

    /// Returns and resets whether the node's network or rules may have changed. Call this before reading them, so
    /// that a change in between is not lost.
    pub fn take_disturbance(&self) -> bool {
        std::mem::take(&mut self.lock().disturbed)
    }

    /// Sets all draining addresses that no longer have an endpoint, and ends a wait as if it had timed out: their
    /// deadline begins now.
    pub fn set_gone(&self, addresses: BTreeSet<IpAddr>) {
        let mut state = self.lock();
        if state.gone != addresses {
            state.gone = addresses;
            state.gone_changed = true;
            self.changed.notify_all();
        }
    }

    /// The draining addresses that no longer have an endpoint.
    pub fn gone(&self) -> BTreeSet<IpAddr> {
        self.lock().gone.clone()
    }

    /// Waits for a plan that was not taken yet, or a disturbance, for at most `timeout`.
    pub fn wait(&self, timeout: Duration) -> Woken {
        self.wait_paced(timeout, |_| Duration::ZERO)
    }

    /// As [`PlanWatch::wait`], but a plan counts only after its `pause`, which is evaluated again for each new plan.
    pub fn wait_paced(&self, timeout: Duration, pause: impl Fn(&NodePlan) -> Duration) -> Woken {
        let started = Instant::now();
        let mut state = self.lock();
        self.waits.store(true, Ordering::Relaxed);
        let woken = loop {
            let left = timeout.saturating_sub(started.elapsed());
            let changed = state.taken != state.generation;
            let pause = if changed {
                pause(&state.plan)
            } else {
                Duration::MAX
            };
            if state.stopped {
                break Woken::Stopped;
            } else if pause.is_zero() {
                break Woken::Changed;
            } else if state.disturbed {
                break Woken::Disturbed;
            } else if left.is_zero() || state.gone_changed {
                break Woken::TimedOut;
            }
            let waited = self.changed.wait_timeout(state, left.min(pause));
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        };
        state.gone_changed = false;
        self.heartbeat.beat();
        self.waits.store(false, Ordering::Relaxed);
        woken
    }

    /// The number of steps of the waiting thread; `None` while it waits, and before its first work.
    pub fn progress(&self) -> Option<u64> {
        let steps = self.heartbeat.count();
        (steps > 0 && !self.waits.load(Ordering::Relaxed)).then_some(steps)
    }

    /// The heartbeat of the thread that waits for plans.
    pub fn heartbeat(&self) -> &Heartbeat {
        &self.heartbeat
    }

    /// Ends all current and later waits.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A plan is replaced as a whole or not at all, so the state is consistent even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// With its path, because `e2e/schedules` includes this file in another folder.
#[cfg(test)]
#[path = "plan_watch/tests.rs"]
mod tests;
