//! Restricts a transaction: to a family, and to what may be written without a complete plan.

use std::collections::BTreeMap;

use portolan_plan::Family;
use portolan_reconcile::nftables::{Operation, SetName, TableElement, Transaction};

/// The parts of a transaction that concern one family each. All operations of a step have the same one.
pub(super) fn by_family(transaction: Transaction) -> BTreeMap<Family, Transaction> {
    let mut parts = BTreeMap::<_, Transaction>::new();
    for step in transaction.steps {
        if let Some(first) = step.operations.first() {
            let part = parts.entry(first.family()).or_default();
            part.steps.push(step);
        }
    }
    for family in transaction.purges {
        parts.entry(family).or_default().purges.insert(family);
    }
    parts
}

/// Removes the steps that delete something. A plan that was saved may be older than the tables, or contain only some
/// Services, so nothing is taken away because of it. Returns false if nothing at all can be written, because the table
/// would have to be rebuilt, or get other rules.
pub(super) fn without_removals(transaction: &mut Transaction) -> bool {
    if transaction.rebuilt().next().is_some() || transaction.has_other_rules() {
        *transaction = Transaction::default();
        return false;
    }
    let removes = |operation: &Operation| match operation {
        // A frontend that grows moves to the next size class.
        Operation::Delete(TableElement::Member { set, .. }) => !matches!(set, SetName::Class(_)),
        Operation::Delete(_) | Operation::Forget { .. } | Operation::DeleteTable(_) => true,
        // Without a new timeout, it only ends the affinity of frontends that the plan does not contain.
        Operation::ReplaceRules { fresh, .. } => fresh.is_empty(),
        Operation::Build { .. } | Operation::Add(_) => false,
    };
    transaction
        .steps
        .retain(|step| !step.operations.iter().any(removes));
    true
}
