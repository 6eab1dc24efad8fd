//! Forgets stale UDP flows once backends or frontends have changed (S-128, S-129).
//!
//! What has to be remembered is one mark for each family: an operation that may have left stale
//! flows sets it, and reading the whole table takes it away. What is stale is decided by the plan
//! that is in force then, whatever the operations were.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use portolan_plan::Family;
use portolan_reconcile::{Desired, Flow, Op, families_with_flows, leaves_stale_flows};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::kernel::{Kernel, KernelError};

/// How often the table of a family is read in one pass, should it hold more stale flows than are
/// held at once.
const ROUNDS: usize = 64;

/// What was done about stale flows since the start, by family (S-133).
pub type FlowCounters = BTreeMap<Family, FlowCounter>;

/// The same of one family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowCounter {
    /// How often flows were looked at.
    pub cleanups: u64,
    /// Those of them that ended in an error, and deleted nothing or not all (S-130).
    pub failed: u64,
    /// How many flows were deleted.
    pub deleted: u64,
    /// How long all of it took.
    pub took: Duration,
    /// How long the last one took.
    pub last: Duration,
}

/// When flows have to be looked at, and what came of it.
#[derive(Debug)]
pub(super) struct Flows {
    due: BTreeSet<Family>,
    counters: watch::Sender<FlowCounters>,
}

impl Default for Flows {
    /// Once after the start: nobody knows what was left undone before.
    fn default() -> Self {
        Self {
            due: Family::BOTH.into(),
            counters: watch::Sender::new(FlowCounters::new()),
        }
    }
}

impl Flows {
    pub(super) fn counters(&self) -> watch::Receiver<FlowCounters> {
        self.counters.subscribe()
    }

    /// Whether no flow has to be looked at.
    pub(super) fn is_quiet(&self) -> bool {
        self.due.is_empty()
    }

    /// Notes that an operation was done.
    pub(super) fn note(&mut self, op: &Op, desired: &Desired) {
        self.due.extend(leaves_stale_flows(op, desired));
    }

    /// Deletes stale flows, if there may be any. Whatever could not be done is tried again in the
    /// next pass, and is no failure of the plan: it keeps nobody from being served (S-130).
    pub(super) fn clean(&mut self, kernel: &mut impl Kernel, desired: &Desired) {
        if self.due.is_empty() {
            return;
        }
        let concerned = families_with_flows(desired);
        self.due.retain(|family| concerned.contains(family));
        for family in self.due.clone() {
            let started = Instant::now();
            let done = clean(kernel, desired, family);
            let took = started.elapsed();
            tell(family, &done, took);
            if done.finished {
                self.due.remove(&family);
            }
            self.counters.send_modify(|counters| {
                let counter = counters.entry(family).or_default();
                counter.cleanups += 1;
                counter.failed += u64::from(done.error.is_some());
                counter.deleted += done.deleted;
                counter.took += took;
                counter.last = took;
            });
        }
    }
}

/// What came of looking at the flows of a family.
#[derive(Debug, Default)]
struct Done {
    seen: u64,
    deleted: u64,
    /// Whether all flows were read and every stale one deleted.
    finished: bool,
    error: Option<KernelError>,
}

fn clean(kernel: &mut impl Kernel, desired: &Desired, family: Family) -> Done {
    let mut done = Done::default();
    let is_stale = |flow: &Flow| flow.is_stale(desired);
    for _ in 0..ROUNDS {
        let found = match kernel.stale_flows(family, &is_stale) {
            Ok(found) => found,
            Err(error) => {
                done.error = Some(error);
                return done;
            }
        };
        done.seen = done.seen.max(found.seen);
        for result in kernel.forget_flows(&found.stale) {
            match result {
                Ok(()) => done.deleted += 1,
                Err(error) => done.error = Some(error),
            }
        }
        if done.error.is_some() {
            return done;
        }
        if !found.more {
            done.finished = !found.interrupted;
            return done;
        }
    }
    done
}

fn tell(family: Family, done: &Done, took: Duration) {
    let (seen, deleted, milliseconds) = (done.seen, done.deleted, took.as_millis());
    if let Some(error) = &done.error {
        warn!(%family, %error, "stale UDP flows may be left; looking again later");
    }
    // As rare as a change of UDP backends, and telling of all of them shows that it is.
    info!(%family, seen, deleted, milliseconds, "looked for stale UDP flows");
}
