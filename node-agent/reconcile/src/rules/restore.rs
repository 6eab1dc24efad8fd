//! Generates text for `iptables-restore --noflush` that turns the observed rules into the desired ones. It changes
//! only Portolan's chains and jumps.

use std::collections::{BTreeMap, BTreeSet};

use super::observed::{ObservedRules, ObservedTable};
use super::{CHAIN_PREFIX, Place, Rules};

/// The text that leads from `observed` to `rules`; `None` if they are equal.
///
/// Chains are replaced as a whole. Missing jumps are inserted, duplicate jumps are deleted, and jumps that must be
/// first or last are moved there.
pub fn restore_text(rules: &Rules, observed: &ObservedRules) -> Option<String> {
    let expected = ObservedRules::of(rules);
    if expected == *observed {
        return None;
    }
    Some(change(&expected, observed))
}

/// The text that removes Portolan's chains and jumps; `None` if there are none.
pub fn cleanup_text(observed: &ObservedRules) -> Option<String> {
    if observed.is_empty() {
        return None;
    }
    Some(change(&ObservedRules::default(), observed))
}

fn change(expected: &ObservedRules, observed: &ObservedRules) -> String {
    let names: BTreeSet<_> = expected
        .tables
        .keys()
        .chain(observed.tables.keys())
        .collect();
    let nothing = ObservedTable::default();
    let mut text = String::new();
    for name in names {
        let wanted = expected.tables.get(name).unwrap_or(&nothing);
        let found = observed.tables.get(name).unwrap_or(&nothing);
        if wanted != found {
            text.push_str(&format!(
                "*{name}\n{}COMMIT\n",
                change_table(name, wanted, found)
            ));
        }
    }
    text
}

fn change_table(table: &str, wanted: &ObservedTable, found: &ObservedTable) -> String {
    let mut lines = Vec::new();
    // Declaring a chain creates or empties it; `restore` without flush does both.
    let chains: BTreeSet<_> = wanted.chains.keys().chain(found.chains.keys()).collect();
    lines.extend(chains.iter().map(|chain| format!(":{chain} - [0:0]")));
    let is_misplaced = |jump: &(String, String)| found.misplaced.contains(&jump.0);
    let (moved, in_place): (Vec<_>, Vec<_>) = found.jumps.iter().cloned().partition(is_misplaced);
    let missing = surplus(&wanted.jumps, &in_place);
    let mut too_many = surplus(&in_place, &wanted.jumps);
    too_many.extend(moved);
    lines.extend(
        too_many
            .iter()
            .map(|(chain, rule)| format!("-D {chain} {rule}")),
    );
    for (chain, rules) in &wanted.chains {
        lines.extend(rules.iter().map(|rule| format!("-A {chain} {rule}")));
    }
    lines.extend(
        missing
            .iter()
            .map(|(chain, rule)| match super::place(table, chain) {
                Place::Last => format!("-A {chain} {rule}"),
                Place::First | Place::Any => format!("-I {chain} 1 {rule}"),
            }),
    );
    let gone = found
        .chains
        .keys()
        .filter(|chain| !wanted.chains.contains_key(*chain));
    lines.extend(gone.map(|chain| format!("-X {chain}")));
    debug_assert!(chains.iter().all(|chain| chain.starts_with(CHAIN_PREFIX)));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The jumps that `left` has in excess of `right`.
pub(super) fn surplus(
    left: &[(String, String)],
    right: &[(String, String)],
) -> Vec<(String, String)> {
    let mut counts = BTreeMap::<&(String, String), usize>::new();
    for jump in right {
        *counts.entry(jump).or_default() += 1;
    }
    let mut more = Vec::new();
    for jump in left {
        match counts.get_mut(jump) {
            Some(count) if *count > 0 => *count -= 1,
            _ => more.push(jump.clone()),
        }
    }
    more
}
