//! Records the results of commits: in the shadow, in what depends on it, and in the outcome.

use std::collections::BTreeSet;

use portolan_plan::Family;
use portolan_reconcile::nftables::{ObservedTables, Operation, Tables, Transaction};
use tracing::{debug, info};

use super::committer::Committed;
use super::drains::Drains;
use super::drift::DriftWatch;
use super::extent::without_removals;
use super::flows::Flows;
use super::keeper::ReconcileOptions;
use super::outcome::TablesOutcome;
use super::retry::Retries;
use crate::kernel::{KernelError, RefusalCause, RefusedOperation};

/// Records the results of the commits for one family.
pub(super) struct Recorder<'a> {
    pub(super) family: Family,
    pub(super) tables: &'a Tables,
    pub(super) options: ReconcileOptions,
    pub(super) shadow: Option<&'a mut ObservedTables>,
    pub(super) drift: &'a mut DriftWatch,
    pub(super) retries: &'a mut Retries,
    pub(super) purges: &'a mut BTreeSet<Family>,
    pub(super) flows: &'a mut Flows,
    pub(super) drains: &'a mut Drains,
    pub(super) outcome: &'a mut TablesOutcome,
    /// Whether the table has to be read again.
    pub(super) stale: bool,
    /// Whether a commit failed.
    pub(super) failed: bool,
    /// Whether the table stays as it is.
    pub(super) left_alone: bool,
}

impl Recorder<'_> {
    /// Removes the operations of a piece that are not to be committed now; `None` if the table has to stay as it is.
    pub(super) fn admit(&mut self, mut piece: Transaction) -> Option<Transaction> {
        let family = self.family;
        for (service, error) in self.retries.hold_back(&mut piece, self.options.now) {
            self.outcome.refuse(&service, &error);
        }
        if !self.options.may_remove && !without_removals(&mut piece) {
            self.left_alone = true;
            self.outcome.left_alone.insert(family);
            info!(
                %family,
                "the table of an earlier agent stays as it is until a controller sends a plan"
            );
            return None;
        }
        // Also if a commit fails: a part of it may be in force.
        self.purges.extend(&piece.purges);
        Some(piece)
    }

    /// Records the result of one piece.
    pub(super) fn record(&mut self, piece: &Transaction, committed: Committed) {
        match committed {
            Committed::Done(refused) => {
                let numbers = refused.iter().map(|one| one.number).collect();
                self.note(piece, &numbers);
                for one in &refused {
                    self.refuse(piece, one);
                }
            }
            Committed::Failed(error) => self.fail(piece, &error),
            Committed::Stale => self.stale = true,
            Committed::NotTried => {}
        }
    }

    /// Updates the state after a commit without the operations with these numbers.
    fn note(&mut self, piece: &Transaction, refused: &BTreeSet<usize>) {
        self.outcome.operations += piece.len().saturating_sub(refused.len());
        if let Some(shadow) = &mut self.shadow {
            shadow.note(piece.except(refused), self.tables);
        }
        self.retries.succeeded(piece, refused);
        for operation in piece.except(refused) {
            self.flows.note(operation, self.options.now);
            self.drains.note(operation, self.options.now);
            if let Operation::Build { family, replaces } = operation {
                self.outcome.built.insert(*family);
                info!(%family, replaces, "built the table");
            }
            if let Operation::ReplaceRules { family, chains, .. } = operation {
                let replaced = &mut self.outcome.rules_replaced;
                replaced.entry(*family).or_default().extend(chains.clone());
                debug!(%operation, "replaced rules");
            }
        }
    }

    /// Attributes a refused operation: to its Service, or to the node.
    fn refuse(&mut self, piece: &Transaction, refused: &RefusedOperation) {
        let owner = piece.owner(refused.number);
        let service = owner.and_then(|owner| owner.service);
        let differs = refused.cause == RefusalCause::State;
        match (owner, service) {
            (Some(owner), _) if differs && matches!(owner.operation, Operation::Delete(_)) => {
                // It is gone already: drift that was only reported, and that the plan now contains.
                if let Some(shadow) = &mut self.shadow {
                    shadow.note([owner.operation], self.tables);
                }
            }
            (Some(owner), Some(service)) if refused.error.of_service => {
                self.retries
                    .note(service, owner.operation, &refused.error, self.options.now);
                self.outcome.refuse(service, &refused.error);
            }
            _ => {
                if let (true, Some(owner)) = (differs, owner) {
                    self.drift.failed(owner.operation);
                }
                // The tables were read, and differ again.
                let error = refused.error.clone();
                let error = error.in_doubt_if(refused.error.in_doubt || differs);
                self.outcome.fail(&error, service, [self.family]);
            }
        }
    }

    fn fail(&mut self, piece: &Transaction, error: &KernelError) {
        self.failed = true;
        if error.in_doubt {
            self.drift.family_failed(self.family);
        }
        self.outcome.fail(error, None, [self.family]);
        self.outcome.failed += piece.len().saturating_sub(1);
    }
}
