//! Writes plans to disk while they change.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use portolan_plan::NodePlan;
use tokio::sync::watch;
use tracing::{info, warn};

use super::{SavedError, SavedPlan, bring_back};
use crate::programmer::Applied;
use crate::slot::PlanSlot;

/// The time between two writes. A plan that is so much older still leads nearly everywhere, and a
/// disk would suffer from a write for each change of a busy cluster.
const PAUSE: Duration = Duration::from_secs(10);

/// Keeps the plan on disk current.
#[derive(Debug)]
pub struct Keeper {
    saved: SavedPlan,
    slot: Arc<PlanSlot>,
    /// Which generation is on disk.
    written: u64,
    failing: bool,
}

impl Keeper {
    /// Keeps the plans of this slot.
    pub fn new(saved: SavedPlan, slot: Arc<PlanSlot>) -> Self {
        Self {
            saved,
            slot,
            written: 0,
            failing: false,
        }
    }

    /// Brings back the plan on disk, and writes each one that a controller sent, once the kernel was
    /// given it, for as long as there is somebody who programs.
    pub async fn run(&mut self, applied: watch::Receiver<Applied>) {
        let (saved, slot) = (self.saved.clone(), self.slot.clone());
        tokio::join!(
            bring_back(&saved, &slot, SystemTime::now()),
            self.keep(applied)
        );
    }

    async fn keep(&mut self, mut applied: watch::Receiver<Applied>) {
        while applied.changed().await.is_ok() {
            let Some((generation, plan)) = self.newer() else {
                continue;
            };
            let saved = self.saved.clone();
            // It waits for the disk.
            let write = move || saved.write(&plan, SystemTime::now());
            match tokio::task::spawn_blocking(write).await {
                Ok(result) => self.note(generation, result),
                Err(error) => warn!(%error, "the plan was not written to disk"),
            }
            tokio::time::sleep(PAUSE).await;
            // What came meanwhile is looked at again.
            applied.mark_changed();
        }
    }

    /// Writes what is not on disk yet: the program is about to end.
    pub fn finish(&mut self) {
        if let Some((generation, plan)) = self.newer() {
            let result = self.saved.write(&plan, SystemTime::now());
            self.note(generation, result);
        }
    }

    fn newer(&self) -> Option<(u64, Arc<NodePlan>)> {
        let live = self.slot.live();
        live.filter(|(generation, _)| *generation != self.written)
    }

    fn note(&mut self, generation: u64, result: Result<(), SavedError>) {
        let failed = std::mem::replace(&mut self.failing, result.is_err());
        match result {
            Ok(()) => self.written = generation,
            Err(problem) if !failed => tell(&problem),
            Err(_) => {}
        }
        if failed && !self.failing {
            info!("the plan is on disk again");
        }
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
