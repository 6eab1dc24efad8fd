//! Keeps the kernel equal to the latest plan: observe, compare, write, verify, retry.
//!
//! One blocking thread runs this. It knows the kernel by a shadow that it keeps up with every
//! operation that succeeded; after a failure, and once in every sync period, it looks again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_plan::{NodePlan, PlanHash};
use portolan_reconcile::{Desired, HostNetwork, Observed, Owned, diff};
use tokio::sync::watch;
use tracing::{debug, error, info, warn};

use crate::kernel::{Kernel, KernelError};
use crate::record::Record;
use crate::slot::{PlanSlot, Woken};

/// The first wait after a failure; it doubles up to [`LONGEST_BACK_OFF`].
const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(30);

/// How many failures are told in words.
const FAILURES_TOLD: usize = 5;

/// What was done about the latest plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// The generation of the plan; 0 before a first one.
    pub generation: u64,
    /// The hash of what is in force in the kernel.
    pub hash: PlanHash,
    /// Operations that were made.
    pub operations: usize,
    /// How long it took.
    pub took: Duration,
    /// The first few failures in words.
    pub failures: Vec<String>,
    /// How many operations failed.
    pub failed: usize,
}

/// Keeps a kernel equal to a plan.
#[derive(Debug)]
pub struct Programmer<K> {
    kernel: K,
    slot: Arc<PlanSlot>,
    record: Record,
    owned: Option<BTreeSet<portolan_reconcile::VirtualServerKey>>,
    shadow: Option<Observed>,
    applied: watch::Sender<Applied>,
}

impl<K: Kernel> Programmer<K> {
    /// A programmer that tells what it did through `applied`.
    pub fn new(
        kernel: K,
        slot: Arc<PlanSlot>,
        record: Record,
        applied: watch::Sender<Applied>,
    ) -> Self {
        let owned = record.read().unwrap_or_else(|problem| {
            warn!(%problem, "going on without the record: service ranges decide what is ours");
            None
        });
        Self {
            kernel,
            slot,
            record,
            owned,
            shadow: None,
            applied,
        }
    }

    /// Runs until the slot is stopped. What is in the kernel then stays there (S-199).
    pub fn run(mut self) {
        let mut wait = Duration::MAX;
        let mut back_off = FIRST_BACK_OFF;
        loop {
            let woken = self.slot.wait(wait);
            let verify = match woken {
                Woken::Stopped => return,
                Woken::TimedOut => true,
                Woken::Changed => false,
            };
            if verify {
                self.shadow = None;
            }
            let (failed, period) = self.pass(verify);
            if failed {
                self.shadow = None;
                wait = back_off;
                back_off = (back_off * 2).min(LONGEST_BACK_OFF);
            } else {
                wait = period;
                back_off = FIRST_BACK_OFF;
            }
        }
    }

    /// Makes the kernel equal to the plan; true when something failed, and when to look again.
    fn pass(&mut self, verify: bool) -> (bool, Duration) {
        let started = Instant::now();
        let slot = self.slot.clone();
        let (generation, read) = slot.take(|plan| self.read(plan));
        let (hash, period, outcome) = match read {
            // Nothing is written before a first complete plan (S-183).
            None => return (false, Duration::MAX),
            Some(Err(error)) => (None, FIRST_BACK_OFF, Outcome::failed(&error)),
            Some(Ok((hash, period, desired))) => (Some(hash), period, self.write(&desired)),
        };
        let before = self.applied.borrow().hash;
        let failed = outcome.failed > 0;
        let applied = Applied {
            generation,
            hash: if failed {
                before
            } else {
                hash.unwrap_or(before)
            },
            operations: outcome.operations,
            took: started.elapsed(),
            failures: outcome.failures,
            failed: outcome.failed,
        };
        tell(&applied, verify);
        self.applied.send_replace(applied);
        (failed, period)
    }

    /// What the plan wants of this kernel; `None` while the plan does not say what the node is.
    fn read(
        &mut self,
        plan: &NodePlan,
    ) -> Option<Result<(PlanHash, Duration, Desired), KernelError>> {
        let settings = &plan.node()?.settings;
        let period = settings.sync.period.as_duration();
        if self.shadow.is_none() {
            // The settings to look at follow from the plan alone.
            let names = Desired::new(plan, &HostNetwork::default())?
                .sysctls
                .into_keys()
                .collect();
            match self.kernel.observe(&settings.device, &names) {
                Ok(observed) => self.shadow = Some(observed),
                Err(error) => return Some(Err(error)),
            }
        }
        let nothing = HostNetwork::default();
        let host = self.shadow.as_ref().map_or(&nothing, |shadow| &shadow.host);
        Some(Ok((plan.usable_hash(), period, Desired::new(plan, host)?)))
    }

    fn write(&mut self, desired: &Desired) -> Outcome {
        let Some(mut shadow) = self.shadow.take() else {
            return Outcome::default();
        };
        let mut owned = Owned {
            ranges: if self.owned.is_none() {
                desired.service_ranges.clone()
            } else {
                Vec::new()
            },
            recorded: self.owned.take().unwrap_or_default(),
            excluded: desired.excluded.clone(),
        };
        let mut outcome = Outcome::default();
        if owned.claim(desired)
            && let Err(problem) = self.record.write(&owned.recorded)
        {
            outcome.fail(&KernelError::new("put virtual servers on record", &problem));
        }
        for (phase, ops) in diff(&shadow, desired, &owned) {
            debug!(?phase, operations = ops.len(), "writing");
            for (op, result) in ops.iter().zip(self.kernel.apply(&ops)) {
                match result {
                    Ok(()) => {
                        outcome.operations += 1;
                        shadow.note(op);
                    }
                    Err(error) => outcome.fail(&error),
                }
            }
        }
        let kept = |server: &_| {
            desired.virtual_servers.contains_key(server)
                || shadow.virtual_servers.contains_key(server)
        };
        if owned.release(kept)
            && let Err(problem) = self.record.write(&owned.recorded)
        {
            outcome.fail(&KernelError::new(
                "take virtual servers off the record",
                &problem,
            ));
        }
        self.owned = Some(owned.recorded);
        self.shadow = Some(shadow);
        outcome
    }
}

#[derive(Debug, Default)]
struct Outcome {
    operations: usize,
    failures: Vec<String>,
    failed: usize,
}

impl Outcome {
    fn failed(error: &KernelError) -> Self {
        let mut outcome = Self::default();
        outcome.fail(error);
        outcome
    }

    fn fail(&mut self, error: &KernelError) {
        self.failed += 1;
        if self.failures.len() < FAILURES_TOLD {
            self.failures.push(error.to_string());
        }
    }
}

fn tell(applied: &Applied, verify: bool) {
    let Applied {
        hash,
        operations,
        took,
        failures,
        failed,
        ..
    } = applied;
    let milliseconds = took.as_millis();
    for failure in failures {
        error!("{failure}");
    }
    if *failed > 0 {
        error!(
            failed,
            operations, milliseconds, "the plan is not in force; trying again"
        );
    } else if !verify {
        info!(plan = %hash, operations, milliseconds, "applied");
    } else if *operations > 0 {
        warn!(
            operations,
            milliseconds, "somebody changed the kernel; repaired"
        );
    } else {
        debug!(milliseconds, "verified");
    }
}
