//! Portolan's chains as printed by `iptables-save`.

use std::collections::{BTreeMap, BTreeSet};

use super::restore::surplus;
use super::{CHAIN_PREFIX, Place, Rules};

/// Portolan's chains and the jumps into them, by table. Everything else is ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedRules {
    pub(super) tables: BTreeMap<String, ObservedTable>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ObservedTable {
    /// Portolan's chains by full name, with their rules.
    pub(super) chains: BTreeMap<String, Vec<String>>,
    /// Rules of other chains that jump to one of Portolan's, as `(chain, rest of the rule)`. They are sorted, because
    /// their order across chains does not matter. A duplicate jump is listed twice.
    pub(super) jumps: Vec<(String, String)>,
    /// Built-in chains in which Portolan's jump has to be first or last, and is not.
    pub(super) misplaced: BTreeSet<String>,
}

impl ObservedRules {
    /// Parses the output of `iptables-save`.
    pub fn parse(saved: &str) -> Self {
        let mut tables = BTreeMap::<String, ObservedTable>::new();
        let mut name = "";
        // Built-in chains of this table that already have a rule of another program.
        let mut begun = BTreeSet::new();
        // Those that already have a jump of Portolan.
        let mut joined = BTreeSet::new();
        for line in saved.lines() {
            if let Some(table) = line.strip_prefix('*') {
                name = table;
                begun.clear();
                joined.clear();
            } else if let Some(declared) = line.strip_prefix(':') {
                let chain = declared.split_whitespace().next().unwrap_or_default();
                if chain.starts_with(CHAIN_PREFIX) {
                    let table = tables.entry(name.into()).or_default();
                    table.chains.entry(chain.into()).or_default();
                }
            } else if let Some((chain, rule)) = line
                .strip_prefix("-A ")
                .and_then(|appended| appended.split_once(' '))
            {
                let own = chain.starts_with(CHAIN_PREFIX);
                if own {
                    let table = tables.entry(name.into()).or_default();
                    table
                        .chains
                        .entry(chain.into())
                        .or_default()
                        .push(rule.into());
                } else if jumps_to_own_chain(rule) {
                    let table = tables.entry(name.into()).or_default();
                    if begun.contains(chain) && super::place(name, chain) == Place::First {
                        table.misplaced.insert(chain.into());
                    }
                    table.jumps.push((chain.into(), rule.into()));
                    joined.insert(chain);
                } else if !keeps_its_place(rule) {
                    begun.insert(chain);
                    if joined.contains(chain) && super::place(name, chain) == Place::Last {
                        let table = tables.entry(name.into()).or_default();
                        table.misplaced.insert(chain.into());
                    }
                }
            }
        }
        for table in tables.values_mut() {
            table.jumps.sort();
        }
        Self { tables }
    }

    /// The result of [`ObservedRules::parse`] if exactly these rules are loaded.
    pub(super) fn of(rules: &Rules) -> Self {
        let name = |chain: &str| format!("{CHAIN_PREFIX}{chain}");
        let tables = rules.tables.iter().map(|table| {
            let mut jumps: Vec<_> = table
                .jumps
                .iter()
                .map(|jump| (jump.from.to_owned(), format!("-j {}", name(jump.to))))
                .collect();
            jumps.sort();
            let chains = table
                .chains
                .iter()
                .map(|(chain, rules)| (name(chain), rules.clone()))
                .collect();
            let misplaced = BTreeSet::new();
            let observed = ObservedTable {
                chains,
                jumps,
                misplaced,
            };
            (table.name.to_owned(), observed)
        });
        Self {
            tables: tables.collect(),
        }
    }

    /// Whether there are none of Portolan's chains or jumps.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// The names of the sets that the rules use.
    pub fn sets(&self) -> impl Iterator<Item = &str> {
        let chains = self.tables.values().flat_map(|table| table.chains.values());
        let matches = chains
            .flatten()
            .flat_map(|rule| rule.split("--match-set ").skip(1));
        matches.filter_map(|rest| rest.split_whitespace().next())
    }

    /// The differences to other rules: each of Portolan's chains by table and name, and each jump into one by table
    /// and rule.
    pub fn differences(&self, other: &Self) -> BTreeSet<(String, String)> {
        let nothing = ObservedTable::default();
        let tables: BTreeSet<_> = self.tables.keys().chain(other.tables.keys()).collect();
        let mut differences = BTreeSet::new();
        for name in tables {
            let left = self.tables.get(name).unwrap_or(&nothing);
            let right = other.tables.get(name).unwrap_or(&nothing);
            let chains: BTreeSet<_> = left.chains.keys().chain(right.chains.keys()).collect();
            let differs = |chain: &&String| left.chains.get(*chain) != right.chains.get(*chain);
            let chains = chains.into_iter().filter(differs).cloned();
            let jumps = [
                surplus(&left.jumps, &right.jumps),
                surplus(&right.jumps, &left.jumps),
            ];
            let jumps = jumps.into_iter().flatten();
            let jumps = jumps.map(|(chain, rule)| format!("{chain} {rule}"));
            let misplaced = left.misplaced.symmetric_difference(&right.misplaced);
            let misplaced = misplaced.map(|chain| {
                let place = match super::place(name, chain) {
                    Place::Last => "last",
                    Place::First | Place::Any => "first",
                };
                format!("{chain}: Portolan's jump is not the {place} rule")
            });
            differences.extend(
                chains
                    .chain(jumps)
                    .chain(misplaced)
                    .map(|what| (name.clone(), what)),
            );
        }
        differences
    }

    /// The number of rules and jumps.
    pub fn len(&self) -> usize {
        let count = |table: &ObservedTable| {
            table.jumps.len() + table.chains.values().map(Vec::len).sum::<usize>()
        };
        self.tables.values().map(count).sum()
    }
}

fn jumps_to_own_chain(rule: &str) -> bool {
    target(rule).is_some_and(|target| target.starts_with(CHAIN_PREFIX))
}

/// Whether another program's rule may precede a jump that must be first, or follow one that must be last. Calico
/// regularly moves its own rule to the first or last position, translates only addresses that it assigned itself, and
/// changes only its own bits of the mark.
fn keeps_its_place(rule: &str) -> bool {
    target(rule).is_some_and(|target| target.starts_with("cali-"))
}

/// The chain or target of a rule.
fn target(rule: &str) -> Option<&str> {
    let mut words = rule.split_whitespace();
    words.find(|word| *word == "-j" || *word == "-g")?;
    words.next()
}
