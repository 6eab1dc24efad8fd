//! Retries of elements that the kernel refused because of their values.
//!
//! Such an element is tried again after a back-off, because each attempt costs the kernel several transactions. All
//! other elements, those of the same Service included, do not wait.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use portolan_plan::ServiceId;
use portolan_reconcile::nftables::{Operation, Transaction};

use crate::kernel::KernelError;

/// Delay before the first retry. It doubles up to [`MAX_BACKOFF`].
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(300);

/// Refused operations by Service.
#[derive(Debug, Default)]
pub(super) struct Retries {
    refused: BTreeMap<ServiceId, Vec<Refused>>,
}

#[derive(Debug)]
struct Refused {
    operation: Operation,
    error: KernelError,
    wait: Duration,
    due: Option<Instant>,
    /// Whether the last complete transaction contained it.
    wanted: bool,
}

impl Retries {
    /// Removes operations from a transaction that are not due yet. Returns their Services and errors.
    pub(super) fn hold_back(
        &mut self,
        transaction: &mut Transaction,
        now: Instant,
    ) -> Vec<(ServiceId, KernelError)> {
        let mut held_back = Vec::new();
        if self.refused.is_empty() {
            return held_back;
        }
        for step in &mut transaction.steps {
            let Some(service) = &step.service else {
                continue;
            };
            let Some(refused) = self.refused.get_mut(service) else {
                continue;
            };
            step.operations.retain(|operation| {
                let known = refused.iter_mut().find(|one| one.operation == *operation);
                let Some(known) = known else {
                    return true;
                };
                known.wanted = true;
                let waits = known.due.is_none_or(|due| now < due);
                if waits {
                    held_back.push((service.clone(), known.error.clone()));
                }
                !waits
            });
        }
        transaction.steps.retain(|step| !step.operations.is_empty());
        held_back
    }

    /// Records a refused operation.
    pub(super) fn note(
        &mut self,
        service: &ServiceId,
        operation: &Operation,
        error: &KernelError,
        now: Instant,
    ) {
        let all = self.refused.entry(service.clone()).or_default();
        let known = all.iter_mut().find(|one| one.operation == *operation);
        if let Some(known) = known {
            known.wait = (known.wait * 2).min(MAX_BACKOFF);
            known.due = now.checked_add(known.wait);
            known.error = error.clone();
            known.wanted = true;
        } else {
            all.push(Refused {
                operation: operation.clone(),
                error: error.clone(),
                wait: INITIAL_BACKOFF,
                due: now.checked_add(INITIAL_BACKOFF),
                wanted: true,
            });
        }
    }

    /// Forgets the operations of a transaction that succeeded: all but those with these numbers.
    pub(super) fn succeeded(&mut self, transaction: &Transaction, except: &BTreeSet<usize>) {
        if self.refused.is_empty() {
            return;
        }
        let mut number = 0;
        for step in &transaction.steps {
            let of_service = step.service.as_ref();
            let mut refused = of_service.and_then(|service| self.refused.get_mut(service));
            for operation in &step.operations {
                if let Some(refused) = refused.as_mut().filter(|_| !except.contains(&number)) {
                    refused.retain(|one| one.operation != *operation);
                }
                number += 1;
            }
        }
        self.refused.retain(|_, refused| !refused.is_empty());
    }

    /// Before a comparison of everything: forgets which operations are wanted.
    pub(super) fn begin(&mut self) {
        let all = self.refused.values_mut().flatten();
        all.for_each(|refused| refused.wanted = false);
    }

    /// After a comparison of everything: removes operations that are no longer wanted.
    pub(super) fn finish(&mut self) {
        self.refused.retain(|_, refused| {
            refused.retain(|one| one.wanted);
            !refused.is_empty()
        });
    }

    /// Time until the first retry.
    pub(super) fn left(&self, now: Instant) -> Duration {
        let due = self.refused.values().flatten().filter_map(|one| one.due);
        let left = due.map(|due| due.saturating_duration_since(now));
        left.min().unwrap_or(Duration::MAX)
    }
}
