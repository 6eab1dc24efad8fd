//! The result of a reconciliation of the tables.
//!
//! What a value of a single Service caused is kept apart: it is no failure of the node (S-229).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_plan::{Family, ServiceId};

use super::flows::FlowCleanup;
use crate::kernel::KernelError;

/// Maximum number of failures with a message. Others are counted.
const MAX_FAILURES: usize = 64;

/// The result of a reconciliation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TablesOutcome {
    /// Number of successful operations.
    pub operations: usize,
    /// Number of failures of the node, and of operations that were not tried because of one.
    pub failed: usize,
    /// The first failures.
    pub failures: Vec<TablesFailure>,
    /// The families that differ from the plan because of a failure.
    pub failed_families: BTreeSet<Family>,
    /// Services with an element that the kernel refuses, each with the first error. The rest of the Service is in force.
    pub refused: BTreeMap<ServiceId, KernelError>,
    /// Whether the effect of some operation is unknown. The next reconciliation reads the tables again.
    pub in_doubt: bool,
    /// The families whose table was built, in place of an existing one or not.
    pub built: BTreeSet<Family>,
    /// The chains whose rules were replaced in tables that stayed.
    pub rules_replaced: BTreeMap<Family, BTreeSet<Arc<str>>>,
    /// The families that were not written: another program changed the rules of the table, and the settings say that
    /// drift is only reported; or the table has to be rebuilt or needs other rules, which waits for a complete plan.
    pub left_alone: BTreeSet<Family>,
    /// Number of clients that no longer stay with a backend that takes no new connections.
    pub purged: usize,
    /// Searches for stale flows.
    pub flows: Vec<FlowCleanup>,
    /// Services whose scheduler this dataplane lacks, with that scheduler.
    pub fallbacks: BTreeMap<ServiceId, Arc<str>>,
    /// Services with too many backends, with the number of those that take no connections.
    pub truncated: BTreeMap<ServiceId, usize>,
}

/// A failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablesFailure {
    /// What failed, and why.
    pub error: KernelError,
    /// The Service of the operation; `None` if it belongs to none.
    pub service: Option<ServiceId>,
    /// The affected families.
    pub families: BTreeSet<Family>,
}

impl TablesOutcome {
    /// Whether the tables are as the plan demands, except for refused elements.
    pub fn is_success(&self) -> bool {
        self.failed == 0
    }

    pub(super) fn fail(
        &mut self,
        error: &KernelError,
        service: Option<&ServiceId>,
        families: impl IntoIterator<Item = Family>,
    ) {
        let families: BTreeSet<_> = families.into_iter().collect();
        self.failed += 1;
        self.in_doubt |= error.in_doubt;
        self.failed_families.extend(&families);
        if self.failures.len() < MAX_FAILURES {
            self.failures.push(TablesFailure {
                error: error.clone(),
                service: service.cloned(),
                families,
            });
        }
    }

    pub(super) fn refuse(&mut self, service: &ServiceId, error: &KernelError) {
        let first = self.refused.entry(service.clone());
        first.or_insert_with(|| error.clone());
    }
}
