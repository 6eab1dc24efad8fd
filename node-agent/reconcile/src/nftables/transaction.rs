//! A transaction: operations that the kernel executes as a whole, by the Service to which they belong.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use portolan_plan::{Family, ServiceId};

use super::element::TableElement;
use super::layout::LEARN_CHAINS;
use super::observed::{ObservedTable, ObservedTables};
use super::print::LayoutPrint;
use super::tables::Tables;

/// The operations between two states of the tables, in an order that can be split anywhere between two steps: the
/// tables, then what keeps clients out, then frontends, and at last what rejects connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The steps.
    pub steps: Vec<Step>,
    /// Families in which a backend left a frontend whose clients stay with their backends. After the commit, the
    /// affinity map of these families must be read, and the elements of [`Tables::stale_affinity`] deleted.
    pub purges: BTreeSet<Family>,
}

/// Operations that belong together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// Their Service; `None` for those that belong to none.
    pub service: Option<ServiceId>,
    /// The operations. Deletions come first, so that a key is free before it is added again.
    pub operations: Vec<Operation>,
}

/// An operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Make a table with its chains, sets and rules, in place of an existing one. The elements of the affinity map are
    /// kept: they must be read before, and written with the transaction.
    Build {
        /// The family.
        family: Family,
        /// Whether there is a table to delete.
        replaces: bool,
    },
    /// Replace the rules of some chains of a table whose sets stay, and add the sets for timeouts of affinity.
    ReplaceRules {
        /// The family.
        family: Family,
        /// The chains.
        chains: BTreeSet<Arc<str>>,
        /// All timeouts of affinity in use, in seconds. Rules that remember backends depend on them.
        timeouts: BTreeSet<u32>,
        /// Those without a set.
        fresh: BTreeSet<u32>,
    },
    /// Delete the sets of affinity timeouts that are no longer in use.
    Forget {
        /// The family.
        family: Family,
        /// The timeouts, in seconds.
        timeouts: BTreeSet<u32>,
    },
    /// Delete a table.
    DeleteTable(Family),
    /// Delete an element.
    Delete(TableElement),
    /// Add an element.
    Add(TableElement),
}

impl Operation {
    /// The family of its table.
    pub fn family(&self) -> Family {
        match self {
            Self::Build { family, .. }
            | Self::ReplaceRules { family, .. }
            | Self::Forget { family, .. }
            | Self::DeleteTable(family) => *family,
            Self::Delete(element) | Self::Add(element) => element.family(),
        }
    }

    /// Whether it replaces rules other than those of affinity in a table that stays.
    pub fn is_of_other_rules(&self) -> bool {
        matches!(self, Self::ReplaceRules { chains, .. } if !is_of_affinity(chains))
    }
}

/// For people: `add endpoint TCP 10.96.0.1:443 slot 0 10.0.0.7:6443`.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Build {
                family,
                replaces: false,
            } => write!(f, "add the {family} table"),
            Self::Build { family, .. } => write!(f, "rebuild the {family} table"),
            Self::ReplaceRules {
                family,
                chains,
                timeouts,
                ..
            } => {
                if is_of_affinity(chains) {
                    let seconds = seconds(timeouts);
                    return write!(
                        f,
                        "replace the {family} rules of affinity, for [{seconds}] seconds"
                    );
                }
                let chains: Vec<_> = chains.iter().map(|chain| &**chain).collect();
                write!(f, "replace the {family} rules of {}", chains.join(", "))
            }
            Self::Forget { family, timeouts } => {
                let seconds = seconds(timeouts);
                write!(
                    f,
                    "delete the {family} sets of affinity for [{seconds}] seconds"
                )
            }
            Self::DeleteTable(family) => write!(f, "delete the {family} table"),
            Self::Delete(element) => write!(f, "delete {element}"),
            Self::Add(element) => write!(f, "add {element}"),
        }
    }
}

/// Whether these chains do nothing but remember backends.
fn is_of_affinity(chains: &BTreeSet<Arc<str>>) -> bool {
    let mut chains = chains.iter();
    chains.all(|chain| LEARN_CHAINS.contains(&&**chain))
}

fn seconds(timeouts: &BTreeSet<u32>) -> String {
    let seconds: Vec<_> = timeouts.iter().map(u32::to_string).collect();
    seconds.join(", ")
}

impl Transaction {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// All operations, in order.
    pub fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.steps.iter().flat_map(|step| &step.operations)
    }

    /// The number of operations.
    pub fn len(&self) -> usize {
        self.steps.iter().map(|step| step.operations.len()).sum()
    }

    /// Whether rules other than those of affinity are replaced in a table that stays.
    pub fn has_other_rules(&self) -> bool {
        self.operations().any(Operation::is_of_other_rules)
    }

    /// The families whose affinity map must be read before the commit, because the table is rebuilt.
    pub fn rebuilt(&self) -> impl Iterator<Item = Family> {
        self.operations().filter_map(|operation| match operation {
            Operation::Build {
                family,
                replaces: true,
            } => Some(*family),
            _ => None,
        })
    }

    /// Splits the transaction into parts of about `most` operations, to be committed in order. Operations of a step
    /// stay together. Purges are in the last part.
    pub fn split(self, most: usize) -> Vec<Self> {
        let mut parts = vec![Self::default()];
        let mut length = 0usize;
        for step in self.steps {
            let more = step.operations.len();
            if length > 0 && length.saturating_add(more) > most {
                parts.push(Self::default());
                length = 0;
            }
            length = length.saturating_add(more);
            if let Some(part) = parts.last_mut() {
                part.steps.push(step);
            }
        }
        if let Some(part) = parts.last_mut() {
            part.purges = self.purges;
        }
        parts
    }

    /// Adds another transaction at the end.
    pub(super) fn append(&mut self, other: Self) {
        self.steps.extend(other.steps);
        self.purges.extend(other.purges);
    }

    pub(super) fn push(&mut self, service: Option<&ServiceId>, operations: Vec<Operation>) {
        if !operations.is_empty() {
            self.steps.push(Step {
                service: service.cloned(),
                operations,
            });
        }
    }
}

impl ObservedTables {
    /// Updates the state with operations that succeeded. `tables` is the state for which they were computed.
    pub fn note<'a>(
        &mut self,
        operations: impl IntoIterator<Item = &'a Operation>,
        tables: &Tables,
    ) {
        for operation in operations {
            self.note_one(operation, tables);
        }
    }

    fn note_one(&mut self, operation: &Operation, tables: &Tables) {
        let family = operation.family();
        match operation {
            Operation::Build { .. } => {
                let print = tables
                    .families
                    .get(&family)
                    .map(|table| table.print(family));
                let built = ObservedTable {
                    layout: print.unwrap_or_default(),
                    ..ObservedTable::default()
                };
                self.tables.insert(family, built);
            }
            Operation::ReplaceRules { chains, .. } => {
                let print = tables
                    .families
                    .get(&family)
                    .map(|table| table.print(family));
                if let (Some(table), Some(print)) = (self.tables.get_mut(&family), print) {
                    table.layout.add_affinity(&print);
                    table.layout.replace_rules(chains, &print);
                }
            }
            Operation::Forget { timeouts, .. } => {
                if let Some(table) = self.tables.get_mut(&family) {
                    table.layout.forget(timeouts);
                }
            }
            Operation::DeleteTable(_) => {
                self.tables.remove(&family);
            }
            Operation::Delete(element) => {
                if let Some(table) = self.tables.get_mut(&family) {
                    table.delete(element);
                }
            }
            Operation::Add(element) => {
                if let Some(table) = self.tables.get_mut(&family) {
                    table.add(element.clone());
                }
            }
        }
    }
}

impl super::FamilyTables {
    /// How chains, rules and sets look in the kernel.
    pub(super) fn print(&self, family: Family) -> LayoutPrint {
        let written = LayoutPrint::from(&self.layout(family));
        let Some(accepted) = &self.accepted else {
            return written;
        };
        let mut print = accepted.clone();
        // The parts of affinity differ for other timeouts.
        if accepted.timeouts() != self.timeouts() {
            print.forget(&accepted.timeouts());
            print.add_affinity(&written);
        }
        print.set_sizes(written);
        print
    }
}
