//! Where the plan stands between the stream that changes it and the thread that programs it.
//! The latest plan wins: a slow kernel never makes plans queue up.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portolan_plan::{HashMismatch, NodePlan, PlanHash, StagedChanges};

/// The plan, and a bell.
#[derive(Debug, Default)]
pub struct PlanSlot {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    plan: NodePlan,
    generation: u64,
    taken: u64,
    stopped: bool,
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// There is a plan that was not taken yet.
    Changed,
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
        let mut state = self.lock();
        state.plan.apply(staged, expected)?;
        state.generation += 1;
        self.bell.notify_all();
        Ok(state.generation)
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

    /// Reads the plan and its generation, which counts as taken from then on.
    pub fn take<T>(&self, read: impl FnOnce(&NodePlan) -> T) -> (u64, T) {
        let mut state = self.lock();
        state.taken = state.generation;
        (state.generation, read(&state.plan))
    }

    /// Waits for a plan that was not taken yet, at most this long.
    pub fn wait(&self, timeout: Duration) -> Woken {
        let waiting = |state: &mut State| !state.stopped && state.taken == state.generation;
        let state = self.lock();
        let (state, _) = self
            .bell
            .wait_timeout_while(state, timeout, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        if state.stopped {
            Woken::Stopped
        } else if state.taken != state.generation {
            Woken::Changed
        } else {
            Woken::TimedOut
        }
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
