//! A model of nf_tables for tests, as strict as the kernel: it executes transactions in the order in which they are
//! encoded, and panics where the kernel would refuse an operation.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use nft_rs::{Chain, Element, Rule, Set};
use portolan_plan::Family;

use super::element::TableElement;
use super::layout::Layout;
use super::observed::{ObservedTable, ObservedTables};
use super::set::SetName;
use super::tables::Tables;
use super::transaction::{Operation, Transaction};

/// The tables of a kernel.
#[derive(Default)]
pub(super) struct Kernel {
    tables: BTreeMap<Family, Table>,
}

#[derive(Default)]
struct Table {
    chains: Vec<Chain>,
    sets: BTreeMap<String, Set>,
    rules: Vec<Rule>,
    /// By set, and by key and whether it ends an interval.
    elements: BTreeMap<String, BTreeMap<(Vec<u8>, bool), Element>>,
}

impl Table {
    fn of(layout: Layout) -> Self {
        let sets = layout
            .sets
            .into_iter()
            .map(|set| (set.name.to_string(), set));
        Self {
            chains: layout.chains,
            sets: sets.collect(),
            rules: layout.rules,
            elements: BTreeMap::new(),
        }
    }

    fn read_into(&self, family: Family, mut read: ObservedTable) -> ObservedTable {
        for (name, elements) in &self.elements {
            // The kernel lists elements in no certain order.
            read.read(family, name, elements.values().rev().cloned());
        }
        read
    }

    fn delete(&mut self, name: &str, element: &Element) {
        let set = self.elements.get_mut(name).expect("the set has elements");
        let key = (element.key.to_vec(), element.interval_end);
        let held = set.remove(&key).expect("a deleted element exists");
        assert_eq!(held.data, element.data, "the element has other data");
        assert_eq!(held.key_end, element.key_end);
    }

    fn add(&mut self, name: &str, element: Element) {
        let set = &self.sets[name];
        assert_eq!(
            set.key_bytes() as usize,
            element.key.len(),
            "{name} {element}"
        );
        assert_eq!(set.data.is_some(), element.data.is_some());
        let held = self.elements.entry(name.to_owned()).or_default();
        let key = (element.key.to_vec(), element.interval_end);
        let before = held.insert(key, element);
        let is_full = set.size.is_some_and(|size| held.len() > size as usize);
        assert!(!is_full, "{name} is full");
        assert_eq!(
            before, None,
            "an added element is new, or its key was freed before"
        );
    }
}

impl Kernel {
    pub(super) fn execute(&mut self, transaction: &Transaction, tables: &Tables) {
        let operations: Vec<_> = transaction.operations().collect();
        for operation in &operations {
            self.before_elements(operation, tables);
        }
        for operation in &operations {
            if let Operation::Delete(element) = operation {
                let table = self.tables.get_mut(&element.family()).unwrap();
                for one in element.encode() {
                    table.delete(&element.set().to_string(), &one);
                }
            }
        }
        for operation in &operations {
            if let Operation::Add(element) = operation {
                self.hold(element);
            }
        }
        for operation in &operations {
            self.after_elements(operation);
        }
        self.check_intervals();
    }

    fn before_elements(&mut self, operation: &Operation, tables: &Tables) {
        let family = operation.family();
        match operation {
            Operation::Build { replaces, .. } => {
                assert_eq!(*replaces, self.tables.contains_key(&family));
                let layout = tables.families[&family].layout(family);
                self.tables.insert(family, Table::of(layout));
            }
            Operation::ReplaceRules {
                chains,
                timeouts,
                fresh,
                ..
            } => {
                let sizes = tables.families[&family].sizes();
                let table = self.tables.get_mut(&family).unwrap();
                for seconds in fresh {
                    let set = SetName::StickyFor(*seconds).definition(family, &sizes);
                    let before = table.sets.insert(set.name.to_string(), set);
                    assert!(before.is_none());
                }
                table.rules.retain(|rule| !chains.contains(&*rule.chain));
                let rules = tables.families[&family].rules_of(family, chains, timeouts);
                for rule in &rules {
                    uses(rule).for_each(|set| assert!(table.sets.contains_key(set), "{set}"));
                }
                table.rules.extend(rules);
            }
            _ => {}
        }
    }

    fn after_elements(&mut self, operation: &Operation) {
        let family = operation.family();
        match operation {
            Operation::Forget { timeouts, .. } => {
                let table = self.tables.get_mut(&family).unwrap();
                for seconds in timeouts {
                    let name = SetName::StickyFor(*seconds).to_string();
                    let is_used = table
                        .rules
                        .iter()
                        .any(|rule| uses(rule).any(|set| set == name));
                    assert!(!is_used, "{name} is in use");
                    table.elements.remove(&name);
                    table.sets.remove(&name).expect("the set exists");
                }
            }
            Operation::DeleteTable(_) => {
                self.tables.remove(&family).expect("the table exists");
            }
            _ => {}
        }
    }

    /// Adds an element, as Portolan or another program.
    pub(super) fn hold(&mut self, element: &TableElement) {
        let table = self.tables.get_mut(&element.family()).unwrap();
        for one in element.encode() {
            table.add(&element.set().to_string(), one);
        }
    }

    /// Deletes an element, as another program would.
    pub(super) fn lose(&mut self, element: &TableElement) {
        let table = self.tables.get_mut(&element.family()).unwrap();
        for one in element.encode() {
            table.delete(&element.set().to_string(), &one);
        }
    }

    /// Deletes the last rule of a table, as another program would.
    pub(super) fn lose_rule(&mut self, family: Family) {
        self.tables.get_mut(&family).unwrap().rules.pop();
    }

    /// Interval sets contain no overlaps.
    fn check_intervals(&self) {
        for (family, table) in &self.tables {
            let table = table.read_into(*family, ObservedTable::default());
            for ranges in [&table.pods, &table.ranges, &table.balancers] {
                check_disjoint(ranges);
            }
            for held in table.frontends.values() {
                check_disjoint(&held.allow);
            }
            let intervals = table.foreign.iter().filter(|(set, _)| set.has_intervals());
            assert_eq!(intervals.count(), 0, "{family}");
        }
    }

    /// The tables as they are read.
    pub(super) fn read(&self) -> ObservedTables {
        let mut observed = ObservedTables::default();
        for (family, table) in &self.tables {
            let sets: Vec<_> = table.sets.values().cloned().collect();
            let read = ObservedTable::new(&table.chains, &sets, &table.rules);
            observed
                .tables
                .insert(*family, table.read_into(*family, read));
        }
        observed
    }
}

fn check_disjoint(ranges: &BTreeSet<IpNet>) {
    for (left, right) in ranges.iter().zip(ranges.iter().skip(1)) {
        let overlap = left.contains(&right.network()) || right.contains(&left.network());
        assert!(!overlap, "{left} and {right} overlap");
    }
}

/// The sets that a rule uses.
fn uses(rule: &Rule) -> impl Iterator<Item = &str> {
    rule.expressions.iter().filter_map(|step| match step {
        nft_rs::Expression::Lookup { set, .. } => Some(&**set),
        _ => None,
    })
}
