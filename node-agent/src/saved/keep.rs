//! Writes changed plans to disk, and regularly confirms an unchanged one.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use portolan_plan::{NodePlan, PlanHash};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{SavedError, SavedPlan, restore_saved};
use crate::plan_watch::PlanWatch;
use crate::programmer::Applied;
use crate::receive::{Link, Outdated};

/// Minimum time between two writes. A plan that is this much older is still nearly right, and writing each change of
/// a busy cluster would wear out disks.
const MIN_WRITE_INTERVAL: Duration = Duration::from_secs(10);
/// Number of confirmations in `disk.maxAge`.
const CONFIRMATIONS: u32 = 4;

/// Keeps the saved plan current.
#[derive(Debug)]
pub struct Keeper {
    saved: SavedPlan,
    plans: Arc<PlanWatch>,
    /// The generation on disk, and its hash there.
    written: Option<(u64, PlanHash)>,
    failing: bool,
}

impl Keeper {
    /// A keeper for the plans of this watch.
    pub fn new(saved: SavedPlan, plans: Arc<PlanWatch>) -> Self {
        Self {
            saved,
            plans,
            written: None,
            failing: false,
        }
    }

    /// Restores the saved plan at start, then saves each plan from a controller after it was taken by a pass, and
    /// confirms it while a current controller is connected. Runs while the programmer runs.
    pub async fn run(&mut self, applied: watch::Receiver<Applied>, link: watch::Receiver<Link>) {
        let (saved, plans) = (self.saved.clone(), self.plans.clone());
        tokio::join!(
            restore_saved(&saved, &plans, SystemTime::now()),
            self.keep(applied, link, SystemTime::now)
        );
    }

    /// As [`Keeper::run`], without restoring the saved plan; `now` returns the wall clock time.
    pub async fn keep(
        &mut self,
        mut applied: watch::Receiver<Applied>,
        link: watch::Receiver<Link>,
        now: impl Fn() -> SystemTime,
    ) {
        let mut confirmed = Instant::now();
        loop {
            let every = self.confirmed_every();
            let due = every.and_then(|every| confirmed.checked_add(every));
            let is_due = tokio::select! {
                changed = applied.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    false
                }
                () = until(due) => true,
            };
            let (outdated, is_current) = {
                let link = link.borrow();
                (link.outdated, link.is_current())
            };
            let (saved, time) = (self.saved.clone(), as_of(now(), outdated));
            // Both do blocking disk I/O.
            let writing = match (self.newer(), self.written) {
                (Some((generation, plan)), _) => tokio::task::spawn_blocking(move || {
                    saved.write(&plan, time).map(|hash| (generation, hash))
                }),
                (None, Some((generation, hash))) if is_due && is_current => {
                    tokio::task::spawn_blocking(move || {
                        saved.confirm(hash, time).map(|()| (generation, hash))
                    })
                }
                _ => {
                    if is_due {
                        confirmed = Instant::now();
                    }
                    continue;
                }
            };
            match writing.await {
                Ok(result) => self.note(result),
                Err(error) => warn!(%error, "could not save the plan"),
            }
            confirmed = Instant::now();
            tokio::time::sleep(MIN_WRITE_INTERVAL).await;
            // Check again for changes during the pause.
            applied.mark_changed();
        }
    }

    /// The interval of confirmations; `None` before a plan is saved.
    fn confirmed_every(&self) -> Option<Duration> {
        self.written?;
        let good = |plan: &NodePlan| {
            let node = plan.node()?;
            Some(node.settings.disk.max_age.as_duration())
        };
        let every = self.plans.peek(good)? / CONFIRMATIONS;
        Some(every.max(MIN_WRITE_INTERVAL))
    }

    /// Saves the plan if it is not on disk yet, because the program is about to end. `outdated` is the state of its
    /// controller.
    pub fn finish(&mut self, outdated: Option<Outdated>) {
        if let Some((generation, plan)) = self.newer() {
            let time = as_of(SystemTime::now(), outdated);
            let result = self.saved.write(&plan, time);
            self.note(result.map(|hash| (generation, hash)));
        }
    }

    fn newer(&self) -> Option<(u64, Arc<NodePlan>)> {
        let live = self.plans.live();
        let written = self.written.map(|(generation, _)| generation);
        live.filter(|(generation, _)| Some(*generation) != written)
    }

    fn note(&mut self, result: Result<(u64, PlanHash), SavedError>) {
        let failed = std::mem::replace(&mut self.failing, result.is_err());
        match result {
            Ok(written) => self.written = Some(written),
            Err(problem) if !failed => log_failure(&problem),
            Err(_) => {}
        }
        if failed && !self.failing {
            info!("saving the plan works again");
        }
    }
}

/// The time at which the plan of a controller was right: an outdated controller does not make an old plan recent.
fn as_of(now: SystemTime, controller: Option<Outdated>) -> SystemTime {
    let age = controller.map_or(Duration::ZERO, Outdated::age);
    now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Waits until this time; forever without one.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Logs the first of several failures.
fn log_failure(problem: &SavedError) {
    warn!(
        %problem,
        "could not save the plan: after a reboot this node would serve an old plan or none until it reaches \
         a controller"
    );
}
