//! Computes the transaction between observed and desired tables.
//!
//! The kernel executes a transaction at once, so the order of operations matters only for their validity and where a
//! large transaction is split: what keeps clients out and masquerades comes before the frontends, and the service
//! ranges, which reject connections to missing frontends, come last.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use ipnet::IpNet;
use nft_rs::{Element, KeyReader};
use portolan_plan::{Family, LocalEndpoint};

use super::element::{self, TableElement};
use super::frontend::{FrontendElements, WantedFrontend};
use super::layout::LEARN_CHAINS;
use super::observed::{ObservedTable, ObservedTables};
use super::print::{chain_of_rules, is_of_affinity};
use super::replace::Touched;
use super::set::SetName;
use super::slots::SlotPlan;
use super::tables::{FamilyTables, Tables};
use super::transaction::{Operation, Transaction};
use crate::VirtualServerKey;

impl Tables {
    /// The transaction from the observed tables to these.
    pub fn diff(&self, observed: &ObservedTables) -> Transaction {
        let mut transaction = Transaction::default();
        for family in Family::BOTH {
            let mut cursor = DiffCursor::new(family);
            while let Some(piece) = self.next_piece(observed, &mut cursor, usize::MAX) {
                transaction.append(piece);
            }
        }
        transaction
    }

    /// The next piece of [`Tables::diff`] for one family, with about `most` operations; `None` if there is no other one.
    /// So the first piece can be committed while the next one is computed, and only a few are in memory. Earlier pieces
    /// may be noted in `observed`, or not yet. A table that is rebuilt is one piece, because it is incomplete until the
    /// end.
    pub fn next_piece(
        &self,
        observed: &ObservedTables,
        cursor: &mut DiffCursor,
        most: usize,
    ) -> Option<Transaction> {
        let mut piece = Transaction::default();
        let family = cursor.family;
        let found = observed.tables.get(&family);
        let Some(wanted) = self.families.get(&family) else {
            if cursor.leave(Stage::Ground, Stage::End) && found.is_some() {
                piece.push(None, vec![Operation::DeleteTable(family)]);
            }
            return (!piece.is_empty()).then_some(piece);
        };
        let nothing = ObservedTable::default();
        let (mut kept, mut most) = (found.unwrap_or(&nothing), most);
        if found.is_none() && wanted.idle {
            cursor.leave(Stage::Ground, Stage::End);
        }
        if cursor.leave(Stage::Ground, Stage::BootCritical(None)) {
            if ground(&mut piece, family, wanted, found).is_none() {
                kept = &nothing;
                most = if found.is_some() { usize::MAX } else { most };
            }
            shared(&mut piece, family, wanted, kept);
        }
        let mut length = piece.len();
        while length < most && cursor.next != Stage::End {
            let steps = piece.steps.len();
            cursor.step(&mut piece, wanted, kept);
            let added = piece.steps.iter().skip(steps);
            length = added.fold(length, |sum, step| {
                sum.saturating_add(step.operations.len())
            });
        }
        (!piece.is_empty()).then_some(piece)
    }

    /// The part of [`Tables::diff`] that a change of some Services causes.
    pub fn diff_of(&self, observed: &ObservedTables, touched: &Touched) -> Transaction {
        let is_to_be_built = |family: Family| {
            let (wanted, found) = (self.families.get(&family), observed.tables.get(&family));
            let is_too_small =
                |wanted: &FamilyTables, found: &ObservedTable| !found.layout.holds(&wanted.sizes());
            found.is_none() || wanted.zip(found).is_some_and(|(a, b)| is_too_small(a, b))
        };
        if touched.families().any(is_to_be_built) {
            return self.diff(observed);
        }
        let mut transaction = Transaction::default();
        let families = self.families.iter();
        let families = families
            .filter_map(|(family, wanted)| Some((*family, wanted, observed.tables.get(family)?)));
        let families: Vec<_> = families.collect();
        for (family, wanted, found) in &families {
            if found.layout.timeouts() != wanted.timeouts() {
                let chains = LEARN_CHAINS.map(Arc::from).into();
                rules(&mut transaction, *family, chains, wanted, found);
            }
            let of_family = touched.hairpins.iter();
            let of_family = of_family.filter(|own| Family::of(own.address) == *family);
            let operations = of_family.filter_map(|own| hairpin(own, wanted, found));
            transaction.push(None, operations.collect());
        }
        for key in &touched.frontends {
            frontend(
                &mut transaction,
                *key,
                self.frontend(key),
                observed.frontend(key),
            );
        }
        for (family, wanted, found) in &families {
            forget(&mut transaction, *family, wanted, found);
        }
        transaction
    }

    /// The tables after [`Tables::diff`] from nothing.
    pub fn applied(&self) -> ObservedTables {
        let mut observed = ObservedTables::default();
        let transaction = self.diff(&observed);
        observed.note(transaction.operations(), self);
        observed
    }

    /// The elements of a family's affinity map that send clients to a backend which takes no new connections (S-98,
    /// S-99), or that belong to no frontend with affinity.
    pub fn stale_affinity<'a>(
        &self,
        family: Family,
        elements: impl IntoIterator<Item = &'a Element>,
    ) -> Vec<Element> {
        let is_right = |element: &Element| {
            let frontend = element::frontend(family, &mut KeyReader::new(&element.key))?;
            let backend = element::backend(family, element)?;
            let wanted = self.frontend(&frontend)?;
            wanted.affinity_seconds()?;
            let weight = wanted.backends.get(&backend)?;
            (weight > 0).then_some(())
        };
        let stale = elements
            .into_iter()
            .filter(|element| is_right(element).is_none());
        stale
            .map(|element| Element {
                key: element.key.clone(),
                ..Element::default()
            })
            .collect()
    }
}

/// Where the differences of a family continue.
#[derive(Debug)]
pub struct DiffCursor {
    family: Family,
    next: Stage,
}

/// A part of the differences; those of frontends continue after one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Ground,
    BootCritical(Option<VirtualServerKey>),
    Others(Option<VirtualServerKey>),
    Gone(Option<VirtualServerKey>),
    Rest,
    End,
}

impl DiffCursor {
    /// The beginning.
    pub fn new(family: Family) -> Self {
        let next = Stage::Ground;
        Self { family, next }
    }

    /// Goes from one stage to another. Returns whether it was there.
    fn leave(&mut self, from: Stage, to: Stage) -> bool {
        let was_there = self.next == from;
        if was_there {
            self.next = to;
        }
        was_there
    }

    /// The differences of the next frontend, or those that are left.
    fn step(&mut self, piece: &mut Transaction, wanted: &FamilyTables, found: &ObservedTable) {
        match self.next {
            Stage::BootCritical(last) => {
                let key = next_wanted(piece, wanted, found, last, true);
                self.next = key.map_or(Stage::Others(None), |key| Stage::BootCritical(Some(key)));
            }
            Stage::Others(last) => {
                let key = next_wanted(piece, wanted, found, last, false);
                self.next = key.map_or(Stage::Gone(None), |key| Stage::Others(Some(key)));
            }
            Stage::Gone(last) => {
                let mut held = found.frontends.range((after(last), Bound::Unbounded));
                let gone = held.find(|(key, _)| !wanted.frontends.contains_key(key));
                if let Some((key, held)) = gone {
                    frontend(piece, *key, None, Some(held));
                }
                self.next = gone.map_or(Stage::Rest, |(key, _)| Stage::Gone(Some(*key)));
            }
            Stage::Ground | Stage::Rest | Stage::End => {
                ranges(piece, wanted, found, SetName::Ranges);
                ranges(piece, wanted, found, SetName::Balancers);
                forget(piece, self.family, wanted, found);
                self.next = Stage::End;
            }
        }
    }
}

/// The differences of the next wanted frontend.
fn next_wanted(
    piece: &mut Transaction,
    wanted: &FamilyTables,
    found: &ObservedTable,
    last: Option<VirtualServerKey>,
    boot_critical: bool,
) -> Option<VirtualServerKey> {
    let mut all = wanted.frontends.range((after(last), Bound::Unbounded));
    let (key, next) = all.find(|(_, one)| one.boot_critical == boot_critical)?;
    frontend(piece, *key, Some(next), found.frontends.get(key));
    Some(*key)
}

fn after(last: Option<VirtualServerKey>) -> Bound<VirtualServerKey> {
    last.map_or(Bound::Unbounded, Bound::Excluded)
}

/// Makes the table, or corrects its rules. Returns the part of the found table that stays; `None` if it is built from
/// nothing.
fn ground<'a>(
    transaction: &mut Transaction,
    family: Family,
    wanted: &FamilyTables,
    found: Option<&'a ObservedTable>,
) -> Option<&'a ObservedTable> {
    let large_enough = found.filter(|found| found.layout.holds(&wanted.sizes()));
    if let Some(kept) = large_enough {
        let differences = kept.layout.differences(&wanted.print(family));
        if let Some(chains) = chains_of(&differences) {
            if !chains.is_empty() {
                rules(transaction, family, chains, wanted, kept);
            }
            return Some(kept);
        }
    }
    let replaces = found.is_some();
    transaction.push(None, vec![Operation::Build { family, replaces }]);
    None
}

/// The chains whose rules have to be replaced; `None` if more than rules differs.
fn chains_of(differences: &BTreeSet<Arc<str>>) -> Option<BTreeSet<Arc<str>>> {
    let mut chains = BTreeSet::new();
    for name in differences {
        match chain_of_rules(name) {
            Some(chain) => chains.extend([Arc::from(chain)]),
            None if is_of_affinity(name) => chains.extend(LEARN_CHAINS.map(Arc::from)),
            None => return None,
        }
    }
    Some(chains)
}

/// Replaces the rules of chains. Unlike those of a table that is built again, sets keep their elements, and no packet
/// finds them empty.
fn rules(
    transaction: &mut Transaction,
    family: Family,
    chains: BTreeSet<Arc<str>>,
    wanted: &FamilyTables,
    found: &ObservedTable,
) {
    let timeouts = wanted.timeouts();
    let fresh = &timeouts - &found.layout.timeouts();
    let operation = Operation::ReplaceRules {
        family,
        chains,
        timeouts,
        fresh,
    };
    transaction.push(None, vec![operation]);
}

/// Deletes the sets of timeouts that are no longer in use. This needs the rules of the others.
fn forget(
    transaction: &mut Transaction,
    family: Family,
    wanted: &FamilyTables,
    found: &ObservedTable,
) {
    let timeouts = &found.layout.timeouts() - &wanted.timeouts();
    if !timeouts.is_empty() {
        transaction.push(None, vec![Operation::Forget { family, timeouts }]);
    }
}

/// What several Services share.
fn shared(
    transaction: &mut Transaction,
    family: Family,
    wanted: &FamilyTables,
    found: &ObservedTable,
) {
    let foreign = found.foreign.iter();
    let foreign = foreign.map(|(set, element)| {
        Operation::Delete(TableElement::Foreign {
            family,
            set: *set,
            element: element.clone(),
        })
    });
    transaction.push(None, foreign.collect());
    ranges(transaction, wanted, found, SetName::Pods);
    let all: BTreeSet<_> = wanted.hairpins.keys().chain(&found.hairpins).collect();
    // Each by itself: a pass that must not remove any still adds the others.
    for operation in all
        .into_iter()
        .filter_map(|own| hairpin(own, wanted, found))
    {
        transaction.push(None, vec![operation]);
    }
}

fn hairpin(own: &LocalEndpoint, wanted: &FamilyTables, found: &ObservedTable) -> Option<Operation> {
    let element = TableElement::Hairpin(*own);
    match (
        wanted.hairpins.contains_key(own),
        found.hairpins.contains(own),
    ) {
        (true, false) => Some(Operation::Add(element)),
        (false, true) => Some(Operation::Delete(element)),
        _ => None,
    }
}

/// Ranges are deleted before others are added, because they may overlap.
fn ranges(
    transaction: &mut Transaction,
    wanted: &FamilyTables,
    found: &ObservedTable,
    set: SetName,
) {
    let (wanted, found) = (wanted.ranges_of(set), found.ranges_of(set));
    let element = |range: &IpNet| TableElement::Range { set, range: *range };
    let gone = found.difference(wanted).map(element).map(Operation::Delete);
    let fresh = wanted.difference(found).map(element).map(Operation::Add);
    transaction.push(None, gone.chain(fresh).collect());
}

fn frontend(
    transaction: &mut Transaction,
    key: VirtualServerKey,
    wanted: Option<&WantedFrontend>,
    found: Option<&FrontendElements>,
) {
    let nothing = FrontendElements::default();
    let found = found.unwrap_or(&nothing);
    let backends = wanted.filter(|wanted| wanted.is_served());
    let backends = backends.map(|wanted| &wanted.backends);
    let plan = SlotPlan::new(
        &found.slots,
        backends.into_iter().flat_map(|all| all.iter()),
    );
    let mut members = wanted
        .map(|wanted| wanted.members.clone())
        .unwrap_or_default();
    members.extend(plan.class.map(SetName::Class));
    let no_ranges = BTreeSet::new();
    let allow = wanted.map_or(&no_ranges, |wanted| &wanted.allow);
    let slot = |slot, backend| TableElement::Slot {
        frontend: key,
        slot,
        backend,
    };
    let member = |set: &SetName| TableElement::Member {
        frontend: key,
        set: *set,
    };
    let range = |range: &IpNet| TableElement::Allow {
        frontend: key,
        range: *range,
    };
    let changes = || plan.changes.iter();
    let left = changes().filter_map(|change| Some(slot(change.slot, change.from?)));
    let stale = found.members.iter().filter(|set| !members.contains(set));
    let gone = left
        .chain(stale.map(member))
        .chain(found.allow.difference(allow).map(range));
    let taken = changes().filter_map(|change| Some(slot(change.slot, change.to?)));
    let fresh = members.iter().filter(|set| !found.members.contains(set));
    let fresh = allow
        .difference(&found.allow)
        .map(range)
        .chain(fresh.map(member))
        .chain(taken);
    let operations = gone.map(Operation::Delete).chain(fresh.map(Operation::Add));
    if found.members.contains(&SetName::Sticky) {
        let is_wanted = |backend| backends.is_some_and(|all| all.get(&backend) > Some(0));
        let leaves = changes()
            .filter_map(|change| change.from)
            .any(|from| !is_wanted(from));
        if leaves || !members.contains(&SetName::Sticky) {
            transaction.purges.insert(Family::of(key.address));
        }
    }
    transaction.push(wanted.map(|wanted| &wanted.service), operations.collect());
}
