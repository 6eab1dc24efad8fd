//! Keeps the kernel equal to the latest plan: observe, compare, write, verify, retry.
//!
//! One blocking thread runs this. It knows the kernel by a shadow that it keeps up with every
//! operation that succeeded; after a failure, and once in every sync period, it looks again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_plan::{NodePlan, PlanHash};
use portolan_reconcile::{Desired, HostNetwork, Observed, Owned, diff, ready};
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
    /// What may be touched; `None` until there was a first plan and there is no record.
    owned: Option<Owned>,
    /// Whether the record on disk is behind `owned`.
    unrecorded: bool,
    shadow: Option<Observed>,
    /// The device that the shadow tells of.
    device: Option<Arc<str>>,
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
        let owned = owned.map(|recorded| Owned {
            recorded,
            ..Owned::default()
        });
        Self {
            kernel,
            slot,
            record,
            owned,
            unrecorded: false,
            shadow: None,
            device: None,
            applied,
        }
    }

    /// Runs until the slot is stopped. What is in the kernel then stays there (S-199).
    pub fn run(mut self) {
        let mut due = None;
        let mut back_off = FIRST_BACK_OFF;
        let mut failed = false;
        loop {
            let wait = due.map_or(Duration::MAX, |due: Instant| {
                due.saturating_duration_since(Instant::now())
            });
            let woken = self.slot.wait(wait);
            if woken == Woken::Stopped {
                return;
            }
            // Changes that come one after the other must not put off looking at the kernel.
            let late = due.is_some_and(|due| due <= Instant::now());
            if late {
                self.shadow = None;
            }
            let why = match woken {
                Woken::Changed => Why::Changed,
                _ if failed => Why::Failed,
                _ => Why::Due,
            };
            let looks = self.shadow.is_none();
            let pass = self.pass(why);
            failed = pass.failed;
            if failed {
                due = Some(Instant::now() + back_off);
                back_off = (back_off * 2).min(LONGEST_BACK_OFF);
            } else if looks || back_off > FIRST_BACK_OFF {
                due = Instant::now().checked_add(pass.period);
                back_off = FIRST_BACK_OFF;
            }
        }
    }

    /// Makes the kernel equal to the plan, and tells what came of it.
    fn pass(&mut self, why: Why) -> Pass {
        let started = Instant::now();
        let ground = self.slot.peek(Ground::of);
        let period = ground
            .as_ref()
            .map_or(Duration::MAX, |ground| ground.period);
        let looked = ground.as_ref().map_or(Ok(()), |ground| self.look(ground));
        let nothing = HostNetwork::default();
        let host = self.shadow.as_ref().map_or(&nothing, |shadow| &shadow.host);
        let (generation, wanted) = self
            .slot
            .take(|plan| Desired::new(plan, host).map(|desired| (plan.usable_hash(), desired)));
        // Nothing is written before a first complete plan (S-183).
        if generation == 0 {
            return Pass {
                failed: false,
                period,
            };
        }
        let before = self.applied.borrow().hash;
        let (hash, outcome) = match (looked, wanted) {
            (Err(error), _) => (before, Outcome::failed(&error)),
            (Ok(()), Some((hash, desired))) => (hash, self.write(&desired)),
            (Ok(()), None) => {
                let reason = "it does not say what this node is; is the controller newer?";
                (
                    before,
                    Outcome::failed(&KernelError::new("read the plan", reason)),
                )
            }
        };
        let failed = outcome.failed > 0;
        let applied = Applied {
            generation,
            hash: if failed { before } else { hash },
            operations: outcome.operations,
            took: started.elapsed(),
            failures: outcome.failures,
            failed: outcome.failed,
        };
        tell(&applied, why);
        self.applied.send_replace(applied);
        Pass { failed, period }
    }

    /// Looks at the kernel, unless what it holds is known.
    fn look(&mut self, ground: &Ground) -> Result<(), KernelError> {
        if self.device.as_ref() != Some(&ground.device) {
            self.device = Some(ground.device.clone());
            self.shadow = None;
        }
        if self.shadow.is_none() {
            self.shadow = Some(self.kernel.observe(&ground.device, &ground.sysctls)?);
        }
        Ok(())
    }

    fn write(&mut self, desired: &Desired) -> Outcome {
        let Some(mut shadow) = self.shadow.take() else {
            return Outcome::default();
        };
        let mut outcome = Outcome::default();
        let adopted = self.owned.is_none();
        let mut owned = self
            .owned
            .take()
            .unwrap_or_else(|| Owned::adopt(&shadow, desired));
        owned.excluded.clone_from(&desired.excluded);
        self.unrecorded |= owned.claim(desired) || adopted;
        self.put_on_record(&owned, &mut outcome);
        for (phase, ops) in diff(&shadow, desired, &owned) {
            debug!(?phase, operations = ops.len(), "writing");
            // One that stands on another that failed would open or take away too much.
            let (ops, held_back) = ready(ops, &shadow, desired);
            for (op, reason) in held_back {
                outcome.fail(&KernelError::new(&op, reason));
            }
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
        self.unrecorded |= owned.release(kept);
        self.put_on_record(&owned, &mut outcome);
        self.owned = Some(owned);
        self.shadow = Some(shadow);
        outcome
    }

    /// Saves the record if it changed. A disk that cannot be written does not keep Services from
    /// working; it is a failure all the same, and tried again.
    fn put_on_record(&mut self, owned: &Owned, outcome: &mut Outcome) {
        if self.unrecorded {
            match self.record.write(&owned.recorded) {
                Ok(()) => self.unrecorded = false,
                Err(problem) => {
                    outcome.fail(&KernelError::new("put virtual servers on record", &problem));
                }
            }
        }
    }
}

/// Why there is a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// The plan changed.
    Changed,
    /// The pass before failed.
    Failed,
    /// The sync period is over.
    Due,
}

/// How a pass ended.
#[derive(Debug, Clone, Copy)]
struct Pass {
    failed: bool,
    /// When to look again.
    period: Duration,
}

/// What has to be known of a plan before the kernel can be looked at.
#[derive(Debug)]
struct Ground {
    device: Arc<str>,
    sysctls: BTreeSet<Arc<str>>,
    period: Duration,
}

impl Ground {
    /// `None` while the plan does not say what the node is.
    fn of(plan: &NodePlan) -> Option<Self> {
        let settings = &plan.node()?.settings;
        Some(Self {
            device: settings.device.clone(),
            sysctls: portolan_reconcile::sysctls().into_keys().collect(),
            period: settings.sync.period.as_duration(),
        })
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

fn tell(applied: &Applied, why: Why) {
    for failure in &applied.failures {
        error!("{failure}");
    }
    if applied.failed > 0 {
        not_in_force(applied);
    } else {
        in_force(applied, why);
    }
}

fn not_in_force(applied: &Applied) {
    let (failed, operations) = (applied.failed, applied.operations);
    let milliseconds = applied.took.as_millis();
    error!(
        failed,
        operations, milliseconds, "the plan is not in force; trying again"
    );
}

fn in_force(applied: &Applied, why: Why) {
    let operations = applied.operations;
    let milliseconds = applied.took.as_millis();
    match why {
        Why::Changed | Why::Failed => {
            info!(plan = %applied.hash, operations, milliseconds, "applied");
        }
        Why::Due if operations > 0 => {
            warn!(
                operations,
                milliseconds, "somebody changed the kernel; repaired"
            );
        }
        Why::Due => debug!(milliseconds, "verified"),
    }
}
