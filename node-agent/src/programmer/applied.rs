//! What a pass tells whoever waits for the plan to be in force.

use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_plan::PlanHash;
use portolan_reconcile::Drift;

use super::Step;

/// What was done about the latest plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// The generation of the plan; 0 before a first one.
    pub generation: u64,
    /// The hash of what is in force in the kernel.
    pub hash: PlanHash,
    /// How many Services it was about, where nothing else had to be compared; `None` for everything.
    pub services: Option<usize>,
    /// Operations that were made.
    pub operations: usize,
    /// How long it took.
    pub took: Duration,
    /// The first few failures in words.
    pub failures: Vec<String>,
    /// How many operations failed.
    pub failed: usize,
    /// What somebody else changed since the start, by kind.
    pub drift: Drift,
    /// When the pass began that did it.
    pub began: Option<Instant>,
    /// What took the time.
    pub steps: Arc<[Step]>,
}
