//! Deletes stale UDP flows from conntrack (connection tracking) after changes of backends or frontends (S-128, S-129).
//!
//! The only state is one mark per family: an operation that may leave stale flows sets it, and a complete read of the
//! table clears it. The plan that is current at that time decides which flows are stale, not the operations.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use portolan_plan::Family;
use portolan_reconcile::{Desired, Draining, Flow, Op, families_with_flows, leaves_stale_flows};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::kernel::{Kernel, KernelError};
use crate::tables::FlowCleanup;

/// Maximum number of reads of a family's table in one pass, if it has more stale flows than one read returns.
const MAX_READS: usize = 64;

/// Counters of the cleanup of stale flows since the start, by family (S-133).
pub type FlowCounters = BTreeMap<Family, FlowCounter>;

/// Counters of one family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowCounter {
    /// Number of cleanups.
    pub cleanups: u64,
    /// Number of cleanups with an error, which deleted none or not all stale flows (S-130).
    pub failed: u64,
    /// Number of deleted flows.
    pub deleted: u64,
    /// Total duration of the cleanups.
    pub took: Duration,
    /// Duration of the last cleanup.
    pub last: Duration,
}

/// The families to clean, and the counters.
#[derive(Debug)]
pub(super) struct Flows {
    due: BTreeSet<Family>,
    counters: watch::Sender<FlowCounters>,
}

impl Default for Flows {
    /// All families are due once after the start, because an earlier agent may have left stale flows.
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

    /// Whether no family is due.
    pub(super) fn is_quiet(&self) -> bool {
        self.due.is_empty()
    }

    /// Marks the families in which this operation may have left stale flows.
    pub(super) fn note(&mut self, op: &Op, desired: &Desired) {
        self.due.extend(leaves_stale_flows(op, desired));
    }

    /// Counts a cleanup in the tables of nftables.
    pub(super) fn count(&mut self, done: &FlowCleanup) {
        self.add(done.family, done.deleted, done.error.is_some(), done.took);
    }

    fn add(&self, family: Family, deleted: u64, failed: bool, took: Duration) {
        self.counters.send_modify(|counters| {
            let counter = counters.entry(family).or_default();
            counter.cleanups += 1;
            counter.failed += u64::from(failed);
            counter.deleted += deleted;
            counter.took += took;
            counter.last = took;
        });
    }

    /// Deletes stale flows, if there may be any. A failure is retried in the next pass. It is not a failure of the
    /// plan, because new connections are served regardless (S-130).
    pub(super) fn clean(
        &mut self,
        kernel: &mut impl Kernel,
        desired: &Desired,
        draining: &Draining,
    ) {
        if self.due.is_empty() {
            return;
        }
        let concerned = families_with_flows(desired);
        self.due.retain(|family| concerned.contains(family));
        for family in self.due.clone() {
            let started = Instant::now();
            let done = clean(kernel, desired, draining, family);
            let took = started.elapsed();
            log_cleanup(family, &done, took);
            if done.finished {
                self.due.remove(&family);
            }
            self.add(family, done.deleted, done.error.is_some(), took);
        }
    }
}

/// The result of a cleanup of one family.
#[derive(Debug, Default)]
struct CleanupResult {
    seen: u64,
    deleted: u64,
    /// Whether all flows were read and every stale one deleted.
    finished: bool,
    error: Option<KernelError>,
}

fn clean(
    kernel: &mut impl Kernel,
    desired: &Desired,
    draining: &Draining,
    family: Family,
) -> CleanupResult {
    let mut done = CleanupResult::default();
    let is_stale = |flow: &Flow| flow.is_stale(desired, draining);
    for _ in 0..MAX_READS {
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

fn log_cleanup(family: Family, done: &CleanupResult, took: Duration) {
    let (seen, deleted, milliseconds) = (done.seen, done.deleted, took.as_millis());
    if let Some(error) = &done.error {
        warn!(%family, %error, "stale UDP flows may be left; retrying in the next pass");
    }
    // Logged at info level: it is as rare as a change of UDP backends, and the log should show that.
    info!(%family, seen, deleted, milliseconds, "searched for stale UDP flows");
}
