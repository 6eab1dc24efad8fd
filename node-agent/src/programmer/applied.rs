//! The published result of a pass.

use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_plan::PlanHash;
use portolan_reconcile::Drift;

use super::{Step, Troubles};
use crate::tables::TablesDrift;

/// The result of the last pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// The generation of the plan; 0 before the first one.
    pub generation: u64,
    /// The hash of the plan that is applied to the kernel, except for the Services in `troubles`.
    pub hash: PlanHash,
    /// The number of compared Services if the pass covered only these; `None` for a complete pass.
    pub services: Option<usize>,
    /// The number of operations.
    pub operations: usize,
    /// The duration of the pass.
    pub took: Duration,
    /// Messages of the first few failures.
    pub failures: Vec<String>,
    /// The number of failed operations.
    pub failed: usize,
    /// The Services that are not in the kernel as their objects ask.
    pub troubles: Arc<Troubles>,
    /// Changes by other programs since the start, by kind.
    pub drift: Drift,
    /// The same in the tables of the nftables dataplane.
    pub tables_drift: TablesDrift,
    /// The start of the pass.
    pub began: Option<Instant>,
    /// The duration of each step.
    pub steps: Arc<[Step]>,
}
