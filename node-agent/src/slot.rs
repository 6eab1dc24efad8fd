//! Where the plan stands between the stream that changes it and the thread that programs it.
//! The latest plan wins: a slow kernel never makes plans queue up. The bell also rings when the
//! node's network changed.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use portolan_plan::{Entry, EntryKey, HashMismatch, NodePlan, PlanHash, ServiceId, StagedChanges};
use portolan_proto::TraceContext;
use portolan_proto::item::HeldList;
use portolan_proto::wire::Watermark;

use crate::receive::Held;

/// So many Services may be touched before a change counts as one of everything: it is read as fast
/// then, and nothing is kept of it.
const MANY: usize = 256;

/// The plan, and a bell.
#[derive(Debug, Default)]
pub struct PlanSlot {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    // Whoever reads it for long holds it while the next one is made.
    plan: Arc<NodePlan>,
    generation: u64,
    source: Source,
    /// The trace of the last change.
    trace: Option<TraceContext>,
    taken: u64,
    change: Change,
    disturbed: bool,
    gone: BTreeSet<IpAddr>,
    stopped: bool,
    /// How often whoever waits here has begun to work.
    begun: u64,
    waits: bool,
}

/// Where a plan is from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Source {
    /// From disk, as far as the cluster needs it to come up.
    #[default]
    BootCritical,
    /// From disk, all of it. The kernel may be ahead of it, so what it does not name is left alone
    /// (S-183).
    Disk,
    /// From a controller.
    Controller,
}

/// What changed in the plan since it was taken.
#[derive(Debug, Default)]
enum Change {
    /// Whatever it is.
    #[default]
    Everything,
    /// These Services, of which the plan had this when it was taken.
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

    /// Notes changes that are about to be made to a plan. Noting too much does no harm.
    fn note(&mut self, staged: &StagedChanges, plan: &NodePlan) {
        let Self::Services { touched, before } = self else {
            return;
        };
        let Some(services) = staged.services() else {
            *self = Self::Everything;
            return;
        };
        let fresh: Vec<_> = services.difference(touched).cloned().collect();
        if touched.len() + fresh.len() > MANY {
            *self = Self::Everything;
            return;
        }
        before.add_part(plan, &fresh);
        touched.extend(fresh);
    }
}

/// A plan as it was taken.
#[derive(Debug)]
pub struct Taken {
    /// Which generation of the plan; 0 before a first one.
    pub generation: u64,
    /// The hash of the values in use, of the whole plan.
    pub hash: PlanHash,
    /// Where it is from.
    pub source: Source,
    /// The trace that its last change belongs to.
    pub trace: Option<TraceContext>,
    /// The plan, or what of it changed.
    pub what: TakenPlan,
}

/// What is taken of a plan.
#[derive(Debug)]
pub enum TakenPlan {
    /// All of it.
    Whole(Arc<NodePlan>),
    /// The Services that changed since it was taken before, as they were then and as they are; the
    /// rest is as it was.
    Part {
        /// How many they are.
        services: usize,
        /// As they were.
        before: NodePlan,
        /// As they are.
        after: NodePlan,
    },
}

impl State {
    fn taken(&mut self, what: TakenPlan) -> Taken {
        self.taken = self.generation;
        Taken {
            generation: self.generation,
            hash: self.plan.usable_hash(),
            source: self.source,
            trace: self.trace,
            what,
        }
    }
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// There is a plan that was not taken yet.
    Changed,
    /// Something happened to the node's network since it was looked at.
    Disturbed,
    /// The time is over.
    TimedOut,
    /// The program is about to end.
    Stopped,
}

impl PlanSlot {
    /// Makes staged changes take effect, and tells which generation of the plan that is.
    ///
    /// # Errors
    /// [`HashMismatch`] when they do not lead to the announced hash.
    pub fn commit(&self, staged: StagedChanges, expected: PlanHash) -> Result<u64, HashMismatch> {
        self.commit_traced(staged, expected, None)
    }

    /// The same, of a change that belongs to a trace.
    ///
    /// # Errors
    /// See [`PlanSlot::commit`].
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
            // What was left alone so far is compared now.
            state.change = Change::Everything;
        }
        state.trace = trace;
        state.generation += 1;
        self.bell.notify_all();
        Ok(state.generation)
    }

    /// Puts a plan from disk here, unless a controller sent one already.
    pub fn bring_back(&self, plan: NodePlan, source: Source) {
        let mut state = self.lock();
        if state.source == Source::Controller {
            return;
        }
        state.source = source;
        state.plan = Arc::new(plan);
        state.change = Change::Everything;
        state.generation += 1;
        self.bell.notify_all();
    }

    /// Whether a controller sent a plan.
    pub fn is_live(&self) -> bool {
        self.lock().source == Source::Controller
    }

    /// The plan that a controller sent, and its generation, as far as it was taken.
    pub fn live(&self) -> Option<(u64, Arc<NodePlan>)> {
        let state = self.lock();
        let live = state.source == Source::Controller;
        let taken = live && state.taken == state.generation;
        taken.then(|| (state.generation, state.plan.clone()))
    }

    /// What is held, for a controller that is told of it with this watermark; `None` before a first
    /// plan.
    pub(crate) fn held(&self, watermark: &Watermark) -> Option<Held> {
        let state = self.lock();
        let plan = &state.plan;
        (!plan.is_empty()).then(|| Held {
            hash: plan.hash(),
            buckets: plan.bucket_hashes(),
            watermark: watermark.clone(),
        })
    }

    /// The list held under a key; `None` unless its bytes could be read when they came last.
    pub(crate) fn list(&self, key: &EntryKey) -> Option<HeldList> {
        let state = self.lock();
        match state.plan.held(key)? {
            (hash, Some(Entry::List(list))) => Some((hash, list.clone())),
            _ => None,
        }
    }

    /// The hash of the plan held; `None` before a first one.
    pub fn hash(&self) -> Option<PlanHash> {
        let state = self.lock();
        (!state.plan.is_empty()).then(|| state.plan.hash())
    }

    /// Reads the plan, which does not count as taken.
    pub fn peek<T>(&self, read: impl FnOnce(&NodePlan) -> T) -> T {
        read(&self.lock().plan)
    }

    /// The plan as it is, for who reads it for long.
    pub fn plan(&self) -> Arc<NodePlan> {
        self.lock().plan.clone()
    }

    /// Takes the whole plan. Who reads it for long keeps no newer plan waiting.
    pub fn take(&self) -> Taken {
        let mut state = self.lock();
        state.change = Change::none();
        let plan = state.plan.clone();
        state.taken(TakenPlan::Whole(plan))
    }

    /// Takes what changed since the plan was taken before, or the whole plan if that is not known or
    /// too much.
    pub fn take_changed(&self) -> Taken {
        let mut state = self.lock();
        let change = std::mem::replace(&mut state.change, Change::none());
        let what = match change {
            Change::Everything => TakenPlan::Whole(state.plan.clone()),
            Change::Services { touched, before } => TakenPlan::Part {
                services: touched.len(),
                before,
                after: state.plan.part(&touched),
            },
        };
        state.taken(what)
    }

    /// Says that something happened to the node's network.
    pub fn disturb(&self) {
        self.lock().disturbed = true;
        self.bell.notify_all();
    }

    /// Whether something happened to the node's network since this was asked before. Ask, then
    /// look: what happens meanwhile counts again.
    pub fn take_disturbance(&self) -> bool {
        std::mem::take(&mut self.lock().disturbed)
    }

    /// Says which of the addresses that drain here have no endpoint any more; all of them.
    pub fn set_gone(&self, addresses: BTreeSet<IpAddr>) {
        self.lock().gone = addresses;
    }

    /// The addresses that have no endpoint any more, as far as they are known to drain here.
    pub fn gone(&self) -> BTreeSet<IpAddr> {
        self.lock().gone.clone()
    }

    /// Waits for a plan that was not taken yet, or a change of the network, at most this long.
    pub fn wait(&self, timeout: Duration) -> Woken {
        self.wait_paced(timeout, |_| Duration::ZERO)
    }

    /// The same. A plan counts once its `pause` is over, which is asked for anew with each that comes.
    pub fn wait_paced(&self, timeout: Duration, pause: impl Fn(&NodePlan) -> Duration) -> Woken {
        let started = Instant::now();
        let mut state = self.lock();
        state.waits = true;
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
            } else if left.is_zero() {
                break Woken::TimedOut;
            }
            let waited = self.bell.wait_timeout(state, left.min(pause));
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        };
        state.waits = false;
        state.begun += 1;
        woken
    }

    /// The number of the work that goes on since the last wait; `None` while there is none.
    pub fn work(&self) -> Option<u64> {
        let state = self.lock();
        (!state.waits && state.begun > 0).then_some(state.begun)
    }

    /// Ends every wait, now and later.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.bell.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A plan is replaced whole or not at all, so one that a panicking thread left is sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
