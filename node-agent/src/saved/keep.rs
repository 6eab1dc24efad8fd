//! Writes plans to disk while they change, and that they are still good while they do not.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use portolan_plan::{NodePlan, PlanHash};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{SavedError, SavedPlan, bring_back};
use crate::programmer::Applied;
use crate::receive::Link;
use crate::slot::PlanSlot;

/// The time between two writes. A plan that is so much older still leads nearly everywhere, and a
/// disk would suffer from a write for each change of a busy cluster.
const PAUSE: Duration = Duration::from_secs(10);
/// So often in the time for which a plan is good on its own it is confirmed.
const CONFIRMATIONS: u32 = 4;

/// Keeps the plan on disk current.
#[derive(Debug)]
pub struct Keeper {
    saved: SavedPlan,
    slot: Arc<PlanSlot>,
    /// Which generation is on disk, and its name there.
    written: Option<(u64, PlanHash)>,
    failing: bool,
}

impl Keeper {
    /// Keeps the plans of this slot.
    pub fn new(saved: SavedPlan, slot: Arc<PlanSlot>) -> Self {
        Self {
            saved,
            slot,
            written: None,
            failing: false,
        }
    }

    /// Brings back the plan on disk, writes each one that a controller sent, once the kernel was given
    /// it, and that it is still good while a controller is there, as `link` says; for as long as there is
    /// somebody who programs.
    pub async fn run(&mut self, applied: watch::Receiver<Applied>, link: watch::Receiver<Link>) {
        let (saved, slot) = (self.saved.clone(), self.slot.clone());
        tokio::join!(
            bring_back(&saved, &slot, SystemTime::now()),
            self.keep(applied, link, SystemTime::now)
        );
    }

    /// The same without what is on disk; `now` tells the time of day.
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
            let (saved, time) = (self.saved.clone(), now());
            // Both wait for the disk.
            let writing = match (self.newer(), self.written) {
                (Some((generation, plan)), _) => tokio::task::spawn_blocking(move || {
                    saved.write(&plan, time).map(|hash| (generation, hash))
                }),
                (None, Some((generation, hash))) if is_due && link.borrow().is_up() => {
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
                Err(error) => warn!(%error, "the plan was not written to disk"),
            }
            confirmed = Instant::now();
            tokio::time::sleep(PAUSE).await;
            // What came meanwhile is looked at again.
            applied.mark_changed();
        }
    }

    /// How often the plan on disk is confirmed; `None` before there is one.
    fn confirmed_every(&self) -> Option<Duration> {
        self.written?;
        let good = |plan: &NodePlan| {
            let node = plan.node()?;
            Some(node.settings.disk.max_age.as_duration())
        };
        let every = self.slot.peek(good)? / CONFIRMATIONS;
        Some(every.max(PAUSE))
    }

    /// Writes what is not on disk yet: the program is about to end.
    pub fn finish(&mut self) {
        if let Some((generation, plan)) = self.newer() {
            let result = self.saved.write(&plan, SystemTime::now());
            self.note(result.map(|hash| (generation, hash)));
        }
    }

    fn newer(&self) -> Option<(u64, Arc<NodePlan>)> {
        let live = self.slot.live();
        let written = self.written.map(|(generation, _)| generation);
        live.filter(|(generation, _)| Some(*generation) != written)
    }

    fn note(&mut self, result: Result<(u64, PlanHash), SavedError>) {
        let failed = std::mem::replace(&mut self.failing, result.is_err());
        match result {
            Ok(written) => self.written = Some(written),
            Err(problem) if !failed => tell(&problem),
            Err(_) => {}
        }
        if failed && !self.failing {
            info!("the plan is on disk again");
        }
    }
}

/// Waits, for ever if there is no time.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Once, however often it fails.
fn tell(problem: &SavedError) {
    warn!(
        %problem,
        "the plan is not on disk: after a reboot this node would serve nothing new before a controller \
         comes"
    );
}
