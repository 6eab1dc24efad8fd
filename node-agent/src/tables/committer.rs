//! Commits the pieces of a transaction, one after the other.

use portolan_plan::Family;
use portolan_reconcile::nftables::{Tables, Transaction};
use tracing::debug;

use crate::kernel::{
    CommitFailure, Extent, KernelError, RefusalCause, RefusedOperation, TablesKernel,
};

/// The result of a commit.
pub(super) enum Committed {
    /// It succeeded, except for refused elements.
    Done(Vec<RefusedOperation>),
    /// Nothing was written: the tables differ from the shadow, which has to be read again.
    Stale,
    /// It failed.
    Failed(KernelError),
    /// It was not tried, because a piece before it did not succeed. Frontends need what keeps clients out.
    NotTried,
}

/// Commits pieces for one family.
pub(super) struct Committer<'a, K> {
    pub(super) kernel: &'a mut K,
    pub(super) family: Family,
    pub(super) tables: &'a Tables,
    /// Whether the tables were just read.
    pub(super) fresh: bool,
    /// Whether the rest is not tried.
    pub(super) stopped: bool,
}

impl<K: TablesKernel> Committer<'_, K> {
    /// Commits the next piece.
    pub(super) fn commit(&mut self, piece: &Transaction) -> Committed {
        if self.stopped {
            return Committed::NotTried;
        }
        let committed = self.attempt(piece);
        self.stopped = !matches!(committed, Committed::Done(_));
        committed
    }

    fn attempt(&mut self, piece: &Transaction) -> Committed {
        debug!(family = %self.family, operations = piece.len(), "committing");
        let mut committed = self.kernel.commit(piece, self.tables, Extent::Whole);
        if let Err(CommitFailure::Refused(refused)) = &committed {
            let differs = |one: &RefusedOperation| one.cause == RefusalCause::State;
            if !self.fresh && refused.iter().any(differs) {
                return Committed::Stale;
            }
            // Without its rules, a table must not get elements.
            if !refused.iter().any(|one| one.of_layout) {
                let extent = Extent::WithoutRefused;
                committed = self.kernel.commit(piece, self.tables, extent);
            }
        }
        match committed {
            Ok(refused) => Committed::Done(refused),
            Err(CommitFailure::Failed(error)) => Committed::Failed(error),
            Err(CommitFailure::Refused(refused)) => {
                let error = refused.iter().find(|one| one.of_layout).or(refused.first());
                let unknown = || KernelError::new("change the tables", "the kernel refused them");
                let error = error.map_or_else(unknown, |one| one.error.clone());
                Committed::Failed(error.of_service_if(false))
            }
        }
    }
}
