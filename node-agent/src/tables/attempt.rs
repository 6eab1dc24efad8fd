//! Commits the transaction of one family. The families are separate, so that a failure in one, like a missing module,
//! does not stop the other.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::vec::IntoIter;

use portolan_plan::Family;
use portolan_reconcile::nftables::{DiffCursor, ObservedTables, Tables, Transaction};
use tracing::debug;

use super::committer::Committer;
use super::keeper::{ReconcileOptions, TablesKeeper};
use super::outcome::TablesOutcome;
use super::recorder::Recorder;
use crate::heartbeat;
use crate::kernel::{KernelError, TablesKernel};
use crate::pipeline;

/// Number of operations per commit. A first plan is divided, so that its first Services do not wait for the last, and so
/// that encoded operations take little memory. A table that is rebuilt is not divided, because it is incomplete until
/// the end.
const OPERATIONS_AT_ONCE: usize = 16_384;

/// The differences to commit for a family.
pub(super) enum Work {
    /// All between the shadow and the tables.
    Everything,
    /// These.
    Part(Transaction),
}

/// The result of the commits of a family.
enum Pieces {
    /// All succeeded, except for refused elements.
    Done,
    /// The table has to be read again.
    Stale,
    /// Something failed.
    Failed,
    /// Nothing was written.
    LeftAlone,
}

impl<K: TablesKernel> TablesKeeper<K> {
    /// Commits the differences of a family. Returns true if its table has to be read and compared again. `fresh` says
    /// that this was just done.
    pub(super) fn commit_family(
        &mut self,
        family: Family,
        work: Work,
        tables: &mut Tables,
        options: ReconcileOptions,
        fresh: bool,
        outcome: &mut TablesOutcome,
    ) -> bool {
        if self.drift.is_frozen(family) {
            outcome.left_alone.insert(family);
            let mut upcoming = Upcoming::new(family, work);
            let next = upcoming.next(tables, self.shadow.as_ref());
            if next.is_some_and(|piece| !piece.is_empty()) {
                outcome.fail(&frozen(family), None, [family]);
            }
            return false;
        }
        let upcoming = Upcoming::new(family, work);
        match self.commit_pieces(upcoming, tables, options, fresh, outcome) {
            Pieces::Stale => return true,
            Pieces::Failed | Pieces::LeftAlone => return false,
            Pieces::Done => {}
        }
        if outcome.built.contains(&family) {
            self.accept(family, None, tables);
        } else if let Some(chains) = outcome.rules_replaced.get(&family) {
            self.accept(family, Some(chains), tables);
        }
        if options.may_remove {
            self.drift.settle(family);
        }
        false
    }

    /// Each piece is computed while the kernel executes the one before.
    fn commit_pieces(
        &mut self,
        mut upcoming: Upcoming,
        tables: &Tables,
        options: ReconcileOptions,
        fresh: bool,
        outcome: &mut TablesOutcome,
    ) -> Pieces {
        let family = upcoming.family;
        let mut committer = Committer {
            kernel: &mut self.kernel,
            family,
            tables,
            fresh,
            stopped: false,
        };
        let recorder = RefCell::new(Recorder {
            family,
            tables,
            options,
            shadow: self.shadow.as_mut(),
            drift: &mut self.drift,
            retries: &mut self.retries,
            purges: &mut self.purges,
            flows: &mut self.flows,
            drains: &mut self.drains,
            outcome,
            stale: false,
            failed: false,
            left_alone: false,
        });
        let next = || {
            let mut recorder = recorder.borrow_mut();
            let shadow = recorder.shadow.as_deref();
            let piece = upcoming.next(tables, shadow)?;
            Some(recorder.admit(piece))
        };
        let pieces = std::iter::from_fn(next).map_while(|piece| piece);
        let pieces = pieces.filter(|piece| !piece.is_empty());
        let commit = |piece: &Transaction| committer.commit(piece);
        pipeline::run(pieces, commit, |piece, committed| {
            recorder.borrow_mut().record(&piece, committed);
            heartbeat::beat();
        });
        let recorder = recorder.into_inner();
        match (recorder.left_alone, recorder.stale, recorder.failed) {
            (true, ..) => Pieces::LeftAlone,
            (_, true, _) => Pieces::Stale,
            (_, _, true) => Pieces::Failed,
            _ => Pieces::Done,
        }
    }

    /// Takes over how the kernel lists what was just written, if it has another form for it: the whole table, or the
    /// rules of these chains. Another program may have changed everything else since the last reading, which is drift.
    fn accept(&mut self, family: Family, chains: Option<&BTreeSet<Arc<str>>>, tables: &mut Tables) {
        let print = match self.kernel.layout(family) {
            Ok(Some(print)) => print,
            // Deleted again: the next event, or the next reading, shows it.
            Ok(None) => return,
            Err(error) => {
                debug!(%error, "cannot read the rules that were just written");
                return;
            }
        };
        let shadow = self.shadow.as_mut();
        let Some(table) = shadow.and_then(|shadow| shadow.tables.get_mut(&family)) else {
            return;
        };
        let listed = match chains {
            None => print,
            Some(chains) => {
                let mut listed = table.layout.clone();
                listed.replace_rules(chains, &print);
                listed
            }
        };
        if table.layout != listed {
            let parts = table.layout.differences(&listed);
            debug!(%family, ?parts, "the kernel lists parts of the table in another form");
            table.layout = listed.clone();
            tables.accept(family, listed);
        }
    }
}

/// The pieces in which the differences of a family are committed.
struct Upcoming {
    family: Family,
    /// Where the differences of everything continue.
    cursor: Option<DiffCursor>,
    /// Pieces of a part.
    pieces: IntoIter<Transaction>,
}

impl Upcoming {
    fn new(family: Family, work: Work) -> Self {
        let (cursor, pieces) = match work {
            Work::Everything => (Some(DiffCursor::new(family)), Vec::new()),
            Work::Part(part) => (None, split(part)),
        };
        Self {
            family,
            cursor,
            pieces: pieces.into_iter(),
        }
    }

    fn next(&mut self, tables: &Tables, shadow: Option<&ObservedTables>) -> Option<Transaction> {
        match &mut self.cursor {
            Some(cursor) => tables.next_piece(shadow?, cursor, OPERATIONS_AT_ONCE),
            None => self.pieces.next(),
        }
    }
}

fn split(part: Transaction) -> Vec<Transaction> {
    if part.is_empty() {
        // Affinity may have to be purged nevertheless.
        return vec![part];
    }
    let rebuilds = part.rebuilt().next().is_some();
    if rebuilds {
        return vec![part];
    }
    part.split(OPERATIONS_AT_ONCE)
}

fn frozen(family: Family) -> KernelError {
    let reason = "another program changed its chains, rules or sets, and settings.drift is Report: delete the table (nft \
                  delete table), or set settings.drift to Repair";
    KernelError::new(&format!("change the {family} table"), reason)
}
