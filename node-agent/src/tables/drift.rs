//! Drift of the tables: changes by other programs since they were last written. It is counted, logged, and repaired or
//! left alone.

use std::collections::{BTreeMap, BTreeSet};

use portolan_plan::{Drift as Mode, Family};
use portolan_reconcile::nftables::{
    ObservedTables, Operation, TableDrift, TableDriftKind, TableElement, Tables, drift, in_words,
};
use portolan_reconcile::{DriftCount, VirtualServerKey};
use tracing::warn;
use xxhash_rust::xxh3::xxh3_64;

/// Maximum number of drifted objects in the log.
const MAX_SHOWN: usize = 5;

/// Counts of drift since the start, by kind.
pub type TablesDrift = BTreeMap<TableDriftKind, DriftCount>;

/// Drift that is known: a hash of its text in place of the text, since a whole set may be missing.
type Known = BTreeSet<(TableDriftKind, Family, u64)>;

/// The state that is needed to distinguish drift from changes of the plan.
#[derive(Debug, Default)]
pub(super) struct DriftWatch {
    mode: Mode,
    /// What may differ because an operation failed.
    doubtful: Doubtful,
    /// Numbers of drifted objects that were found, and that were repaired.
    counts: BTreeMap<TableDriftKind, (u64, u64)>,
    /// Drift that is left alone.
    alone: Known,
    /// Drift that is to be corrected.
    pending: Known,
    /// Families that are not written, because another program changed their rules.
    frozen: BTreeSet<Family>,
}

#[derive(Debug, Default)]
struct Doubtful {
    frontends: BTreeSet<VirtualServerKey>,
    families: BTreeSet<Family>,
}

impl DriftWatch {
    /// Sets the mode from `settings.drift`.
    pub(super) fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// Records an operation whose effect differs from what the shadow says, or is unknown.
    pub(super) fn failed(&mut self, operation: &Operation) {
        let element = match operation {
            Operation::Add(element) | Operation::Delete(element) => Some(element),
            _ => None,
        };
        match element.and_then(TableElement::frontend) {
            Some(frontend) => drop(self.doubtful.frontends.insert(*frontend)),
            None => self.family_failed(operation.family()),
        }
    }

    /// Records that the state of a family is unknown.
    pub(super) fn family_failed(&mut self, family: Family) {
        self.doubtful.families.insert(family);
    }

    /// Whether some drift is left alone. It has to be read again before a change of the plan.
    pub(super) fn leaves_alone(&self) -> bool {
        !self.alone.is_empty()
    }

    /// Whether a family is not written.
    pub(super) fn is_frozen(&self, family: Family) -> bool {
        self.frozen.contains(&family)
    }

    /// Compares what was read with the state that the agent left, counts and logs differences. Returns the state with
    /// which the plan has to be compared: if drift is only reported, that is the state without the drift. `tables` are
    /// any tables.
    pub(super) fn judge(
        &mut self,
        left: ObservedTables,
        found: ObservedTables,
        tables: &Tables,
    ) -> ObservedTables {
        let mut drifted = drift(&left, &found);
        let doubtful = std::mem::take(&mut self.doubtful);
        drifted.retain(|one| !doubtful.contains(one));
        let known: Known = drifted.iter().map(identity).collect();
        self.note_fresh(&drifted);
        self.frozen.clear();
        self.alone.clear();
        match self.mode {
            Mode::Repair => {
                self.pending.extend(known);
                found
            }
            Mode::Report => {
                self.pending.clear();
                self.alone = known;
                self.frozen = families_of_layout(&drifted);
                without(&drifted, &self.frozen, left, found, tables)
            }
        }
    }

    /// Counts and logs the drift that was not known before.
    fn note_fresh(&mut self, drifted: &[TableDrift]) {
        let is_fresh = |one: &&TableDrift| {
            let identity = identity(one);
            !self.alone.contains(&identity) && !self.pending.contains(&identity)
        };
        let fresh: Vec<_> = drifted.iter().filter(is_fresh).cloned().collect();
        for one in &fresh {
            let kind = one.kind();
            self.counts.entry(kind).or_default().0 += 1;
        }
        log_drift(&fresh, self.mode == Mode::Report);
    }

    /// After a successful reconciliation of a family: its drift is corrected.
    pub(super) fn settle(&mut self, family: Family) {
        let counts = &mut self.counts;
        self.pending.retain(|(kind, of, _)| {
            let settled = *of == family;
            if settled {
                counts.entry(*kind).or_default().1 += 1;
            }
            !settled
        });
    }

    /// The counts by kind.
    pub(super) fn counts(&self) -> TablesDrift {
        let unrepaired = |kind: TableDriftKind| {
            let all = self.alone.iter().chain(&self.pending);
            let count = all.filter(|(of, ..)| *of == kind).count();
            u64::try_from(count).unwrap_or(u64::MAX)
        };
        let counts = self.counts.iter();
        let counts = counts.map(|(kind, (found, repaired))| {
            let count = DriftCount {
                found: *found,
                repaired: *repaired,
                unrepaired: unrepaired(*kind),
            };
            (*kind, count)
        });
        counts.collect()
    }
}

impl Doubtful {
    fn contains(&self, drift: &TableDrift) -> bool {
        let frontend = match drift {
            TableDrift::Missing(element) | TableDrift::Unexpected(element) => element.frontend(),
            TableDrift::Table(_) | TableDrift::Part(..) => None,
        };
        self.families.contains(&drift.family())
            || frontend.is_some_and(|frontend| self.frontends.contains(frontend))
    }
}

/// The families whose table is missing, or has other chains, rules or sets.
fn families_of_layout(drifted: &[TableDrift]) -> BTreeSet<Family> {
    let families = drifted.iter().filter_map(|one| match one {
        TableDrift::Table(family) | TableDrift::Part(family, _) => Some(*family),
        TableDrift::Missing(_) | TableDrift::Unexpected(_) => None,
    });
    families.collect()
}

/// The state that was found, without drift. Tables of `frozen` families are those that the agent left.
fn without(
    drifted: &[TableDrift],
    frozen: &BTreeSet<Family>,
    mut left: ObservedTables,
    mut found: ObservedTables,
    tables: &Tables,
) -> ObservedTables {
    let undo = drifted.iter().filter_map(|one| match one {
        TableDrift::Unexpected(element) => Some(Operation::Delete(element.clone())),
        TableDrift::Missing(element) => Some(Operation::Add(element.clone())),
        TableDrift::Table(_) | TableDrift::Part(..) => None,
    });
    found.note(&undo.collect::<Vec<_>>(), tables);
    for family in frozen {
        if let Some(table) = left.tables.remove(family) {
            found.tables.insert(*family, table);
        }
    }
    found
}

fn identity(drift: &TableDrift) -> (TableDriftKind, Family, u64) {
    let text = drift.to_string();
    (drift.kind(), drift.family(), xxh3_64(text.as_bytes()))
}

/// Logs new drift.
fn log_drift(fresh: &[TableDrift], alone: bool) {
    if fresh.is_empty() {
        return;
    }
    let found = in_words(fresh);
    let first = fresh.iter().take(MAX_SHOWN).map(ToString::to_string);
    let first = first.collect::<Vec<_>>().join("; ");
    if alone {
        warn!(
            %found, %first,
            "another program changed the tables of the agent; not repairing them because of settings.drift"
        );
    } else {
        warn!(%found, %first, "another program changed the tables of the agent; repairing them");
    }
}
