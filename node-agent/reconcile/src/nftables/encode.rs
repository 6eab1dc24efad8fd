//! Writes a transaction as a batch, and finds the operations that a refusal is about.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nft_rs::{Batch, Element, Refusal, Table, TableFlags, user_data};
use portolan_plan::{Family, ServiceId};

use super::set::SetName;
use super::tables::Tables;
use super::transaction::{Operation, Transaction};
use super::{Layout, TABLE, nft_family, table_id};

/// Which operations a batch contains.
#[derive(Debug, Clone, Default)]
pub struct Encoded {
    /// By position in the batch, the numbers of operations: one for each element, or a single one.
    places: BTreeMap<usize, Vec<usize>>,
}

impl Encoded {
    /// The numbers of the operations that a refusal is about, in the order of [`Transaction::operations`]: one if the
    /// kernel names the element, or all that it may be about.
    pub fn refused(&self, refusal: &Refusal) -> BTreeSet<usize> {
        let Some(all) = self.places.get(&refusal.operation) else {
            return BTreeSet::new();
        };
        match refusal.element.and_then(|element| all.get(element)) {
            Some(one) => BTreeSet::from([*one]),
            None => all.iter().copied().collect(),
        }
    }

    fn note(&mut self, position: usize, operation: usize) {
        self.places.entry(position).or_default().push(operation);
    }
}

/// Whose operation it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner<'a> {
    /// The Service; `None` if it belongs to none.
    pub service: Option<&'a ServiceId>,
    /// The operation.
    pub operation: &'a Operation,
}

impl Transaction {
    /// Appends the operations to a batch. `tables` is the state for which they were computed, and `affinity` has the
    /// elements of the affinity maps of [`Transaction::rebuilt`] families, as they were read. Tables that are made get
    /// these flags.
    ///
    /// Elements are written by set, all deletions before all additions, so that few messages hold them.
    pub fn encode(
        &self,
        tables: &Tables,
        affinity: &BTreeMap<Family, Vec<Element>>,
        flags: TableFlags,
        batch: &mut Batch,
    ) -> Encoded {
        let mut encoded = Encoded::default();
        let mut writer = Writer {
            tables,
            flags,
            batch,
            encoded: &mut encoded,
        };
        for (number, operation) in self.operations().enumerate() {
            writer.before_elements(number, operation, affinity);
        }
        writer.elements(self, false);
        writer.elements(self, true);
        for (number, operation) in self.operations().enumerate() {
            writer.after_elements(number, operation);
        }
        encoded
    }

    /// The operation with a number, and its Service.
    pub fn owner(&self, number: usize) -> Option<Owner<'_>> {
        let mut owners = self.steps.iter().flat_map(|step| {
            let service = step.service.as_ref();
            let operations = step.operations.iter();
            operations.map(move |operation| Owner { service, operation })
        });
        owners.nth(number)
    }

    /// The operations other than those with these numbers.
    pub fn except<'a>(
        &'a self,
        refused: &'a BTreeSet<usize>,
    ) -> impl Iterator<Item = &'a Operation> {
        let numbered = self.operations().enumerate();
        numbered
            .filter(|(number, _)| !refused.contains(number))
            .map(|(_, operation)| operation)
    }
}

struct Writer<'a> {
    tables: &'a Tables,
    flags: TableFlags,
    batch: &'a mut Batch,
    encoded: &'a mut Encoded,
}

impl Writer<'_> {
    fn before_elements(
        &mut self,
        number: usize,
        operation: &Operation,
        affinity: &BTreeMap<Family, Vec<Element>>,
    ) {
        match operation {
            Operation::Build { family, replaces } => {
                if *replaces {
                    let position = self.batch.delete_table(&table_id(*family));
                    self.encoded.note(position, number);
                }
                self.build(number, *family, affinity.get(family));
            }
            Operation::ReplaceRules {
                family,
                chains,
                timeouts,
                fresh,
            } => {
                self.add_affinity_sets(number, *family, fresh);
                self.replace_rules(number, *family, chains, timeouts);
            }
            Operation::Forget { .. }
            | Operation::DeleteTable(_)
            | Operation::Delete(_)
            | Operation::Add(_) => {}
        }
    }

    fn after_elements(&mut self, number: usize, operation: &Operation) {
        match operation {
            Operation::Forget { family, timeouts } => {
                for seconds in timeouts {
                    let set = SetName::StickyFor(*seconds).to_string();
                    let position = self.batch.delete_set(&table_id(*family), &set);
                    self.encoded.note(position, number);
                }
            }
            Operation::DeleteTable(family) => {
                let position = self.batch.delete_table(&table_id(*family));
                self.encoded.note(position, number);
            }
            Operation::Build { .. }
            | Operation::ReplaceRules { .. }
            | Operation::Delete(_)
            | Operation::Add(_) => {}
        }
    }

    fn build(&mut self, number: usize, family: Family, affinity: Option<&Vec<Element>>) {
        let Some(wanted) = self.tables.families.get(&family) else {
            return;
        };
        let id = table_id(family);
        let batch = &mut *self.batch;
        let mut positions = wanted.layout(family).encode(self.flags, batch);
        if let Some(elements) = affinity.filter(|elements| !elements.is_empty()) {
            let set = SetName::Affinity.to_string();
            positions.push(batch.add_elements(&id, &set, elements));
        }
        for position in positions {
            self.encoded.note(position, number);
        }
    }

    fn add_affinity_sets(&mut self, number: usize, family: Family, fresh: &BTreeSet<u32>) {
        let Some(wanted) = self.tables.families.get(&family) else {
            return;
        };
        let sizes = wanted.sizes();
        for seconds in fresh {
            let set = SetName::StickyFor(*seconds).definition(family, &sizes);
            let position = self.batch.add_set(&table_id(family), &set);
            self.encoded.note(position, number);
        }
    }

    fn replace_rules(
        &mut self,
        number: usize,
        family: Family,
        chains: &BTreeSet<Arc<str>>,
        timeouts: &BTreeSet<u32>,
    ) {
        let Some(wanted) = self.tables.families.get(&family) else {
            return;
        };
        let id = table_id(family);
        for chain in chains {
            let position = self.batch.flush_chain(&id, chain);
            self.encoded.note(position, number);
        }
        for rule in wanted.rules_of(family, chains, timeouts) {
            let position = self.batch.add_rule(&id, &rule);
            self.encoded.note(position, number);
        }
    }

    fn elements(&mut self, transaction: &Transaction, adds: bool) {
        let mut by_set = BTreeMap::<(Family, SetName), Vec<_>>::new();
        for (number, operation) in transaction.operations().enumerate() {
            let element = match operation {
                Operation::Add(element) if adds => element,
                Operation::Delete(element) if !adds => element,
                _ => continue,
            };
            let set = (element.family(), element.set());
            by_set.entry(set).or_default().push((number, element));
        }
        for ((family, set), elements) in by_set {
            let (id, name) = (table_id(family), set.to_string());
            // Elements are encoded one by one, so that not all of them are in memory in both forms.
            let mut numbers = Vec::with_capacity(elements.len());
            let all = elements.iter().flat_map(|(number, element)| {
                let encoded = element.encode();
                numbers.extend(std::iter::repeat_n(*number, encoded.len()));
                encoded
            });
            let position = match adds {
                true => self.batch.add_elements(&id, &name, all),
                false => self.batch.delete_elements(&id, &name, all),
            };
            self.encoded.places.insert(position, numbers);
        }
    }
}

impl Layout {
    /// Adds the table with its chains, sets and rules to a batch, and returns the positions of these operations.
    pub fn encode(&self, flags: TableFlags, batch: &mut Batch) -> Vec<usize> {
        let id = table_id(self.family);
        let mut positions = vec![batch.add_table(&table(self.family, flags))];
        positions.extend(self.chains.iter().map(|chain| batch.add_chain(&id, chain)));
        positions.extend(self.sets.iter().map(|set| batch.add_set(&id, set)));
        positions.extend(self.rules.iter().map(|rule| batch.add_rule(&id, rule)));
        positions
    }
}

/// The table with a comment for people.
fn table(family: Family, flags: TableFlags) -> Table {
    let mut table = Table {
        flags,
        ..Table::new(nft_family(family), TABLE)
    };
    // A short text always fits.
    _ = user_data::put_text(
        &mut table.user_data,
        user_data::COMMENT,
        "managed by Portolan",
    );
    table
}
