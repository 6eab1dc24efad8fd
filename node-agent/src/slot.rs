//! Where the plan stands between the stream that changes it and the thread that programs it.
//! The latest plan wins: a slow kernel never makes plans queue up. The bell also rings when the
//! node's network changed.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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
    // Whoever reads it for long holds it while the next one is made.
    plan: Arc<NodePlan>,
    generation: u64,
    taken: u64,
    disturbed: bool,
    gone: BTreeSet<IpAddr>,
    stopped: bool,
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
        let mut state = self.lock();
        Arc::make_mut(&mut state.plan).apply(staged, expected)?;
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

    /// Reads the plan and its generation, which counts as taken from then on. A reader that takes
    /// long keeps no newer plan waiting.
    pub fn take<T>(&self, read: impl FnOnce(&NodePlan) -> T) -> (u64, T) {
        let mut state = self.lock();
        state.taken = state.generation;
        let (generation, plan) = (state.generation, state.plan.clone());
        drop(state);
        (generation, read(&plan))
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
        let waiting = |state: &mut State| {
            !state.stopped && !state.disturbed && state.taken == state.generation
        };
        let state = self.lock();
        let (state, _) = self
            .bell
            .wait_timeout_while(state, timeout, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        if state.stopped {
            Woken::Stopped
        } else if state.taken != state.generation {
            Woken::Changed
        } else if state.disturbed {
            Woken::Disturbed
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn a_plan_is_committed_while_somebody_still_reads_the_one_before() {
        let slot = Arc::new(PlanSlot::default());
        let (done, committed) = sync_channel(1);
        let (before, during) = slot.take(|plan| {
            let other = slot.clone();
            std::thread::spawn(move || {
                let generation = other.commit(StagedChanges::snapshot(), PlanHash::default());
                done.send(generation.ok()).unwrap();
            });
            let during = committed.recv_timeout(Duration::from_secs(10));
            assert!(plan.is_empty());
            during
        });
        assert_eq!((before, during), (0, Ok(Some(1))));
        assert_eq!(
            slot.wait(Duration::ZERO),
            Woken::Changed,
            "it was not taken"
        );
    }
}
