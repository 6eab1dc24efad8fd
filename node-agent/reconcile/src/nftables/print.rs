//! A short form of chains, rules and the definitions of sets, to compare what is written with what is read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::sync::Arc;

use nft_rs::{Chain, Rule, Set};
use xxhash_rust::xxh3::Xxh3;

use super::layout::{LEARN_CHAINS, Layout};
use super::set::SetName;
use super::sizes::Sizes;

/// The hash of each chain, of the rules of each chain, and of each set (without its elements), by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LayoutPrint {
    parts: BTreeMap<Arc<str>, u64>,
    /// The sizes of sets that follow the contents. They are no part of the hashes, because larger ones are right, too.
    sizes: BTreeMap<SetName, u32>,
}

impl LayoutPrint {
    /// The print of chains, sets and rules, as they are written or as they were read. Rules are in the order of their
    /// chains.
    pub fn new(chains: &[Chain], sets: &[Set], rules: &[Rule]) -> Self {
        let mut parts = BTreeMap::<Arc<str>, Hasher>::new();
        for chain in chains {
            let part = parts
                .entry(format!("chain {}", chain.name).into())
                .or_default();
            part.add(&(&chain.base, &chain.user_data));
        }
        for rule in rules {
            let part = parts.entry(rules_of(&rule.chain)).or_default();
            part.add(&(&rule.expressions, &rule.comment, &rule.user_data));
        }
        let mut sizes = BTreeMap::new();
        for set in sets {
            let part = parts.entry(format!("set {}", set.name).into()).or_default();
            let mut set = set.clone().as_written();
            if let Ok(name) = set.name.parse::<SetName>()
                && name.follows_contents()
            {
                sizes.insert(name, set.size.take().unwrap_or(0));
            }
            part.add(&set);
        }
        let parts = parts
            .into_iter()
            .map(|(name, part)| (name, part.0.digest()));
        Self {
            parts: parts.collect(),
            sizes,
        }
    }

    /// Whether the sets are as large as these sizes.
    pub(super) fn holds(&self, sizes: &Sizes) -> bool {
        let mut all = self.sizes.iter();
        all.all(|(set, size)| Some(*size) >= sizes.of(*set))
    }

    /// Takes over the sizes of another print.
    pub(super) fn set_sizes(&mut self, from: Self) {
        self.sizes = from.sizes;
    }

    /// The names of the parts that differ in more than their size: `chain pick`, `content of chain pick`,
    /// `set sticky-10800`. The content of a chain that itself differs is not mentioned.
    pub fn differences(&self, other: &Self) -> BTreeSet<Arc<str>> {
        let names: BTreeSet<_> = self.parts.keys().chain(other.parts.keys()).collect();
        let differs = |name: &str| self.parts.get(name) != other.parts.get(name);
        let is_mentioned = |name: &&Arc<str>| {
            let chain = chain_of_rules(name).map(|chain| format!("chain {chain}"));
            differs(name) && !chain.is_some_and(|chain| differs(&chain))
        };
        names.into_iter().filter(is_mentioned).cloned().collect()
    }

    /// The affinity timeouts whose sets exist, in seconds.
    pub(super) fn timeouts(&self) -> BTreeSet<u32> {
        let names = self.parts.keys();
        let names = names.filter_map(|name| name.strip_prefix("set "));
        names
            .filter_map(|name| match name.parse() {
                Ok(SetName::StickyFor(seconds)) => Some(seconds),
                _ => None,
            })
            .collect()
    }

    /// Adds the parts of another print that depend on the affinity timeouts in use, in place of its own.
    pub(super) fn add_affinity(&mut self, from: &Self) {
        let affinity = from.parts.iter().filter(|(name, _)| is_of_affinity(name));
        let affinity = affinity.map(|(name, hash)| (name.clone(), *hash));
        self.parts.extend(affinity);
        self.replace_rules(&LEARN_CHAINS.map(Arc::from).into(), from);
        // A set that exists keeps its size.
        let sets = from.sizes.iter();
        for (set, size) in sets.filter(|(set, _)| matches!(set, SetName::StickyFor(_))) {
            self.sizes.entry(*set).or_insert(*size);
        }
    }

    /// The names of the chains.
    pub fn chains(&self) -> BTreeSet<Arc<str>> {
        let names = self.parts.keys();
        let chains = names.filter_map(|name| name.strip_prefix("chain "));
        chains.map(Arc::from).collect()
    }

    /// Takes over the rules of these chains from another print.
    pub fn replace_rules(&mut self, chains: &BTreeSet<Arc<str>>, from: &Self) {
        for chain in chains {
            let name = rules_of(chain);
            match from.parts.get(&name) {
                Some(hash) => self.parts.insert(name, *hash),
                None => self.parts.remove(&name),
            };
        }
    }

    /// Removes the sets of affinity timeouts.
    pub(super) fn forget(&mut self, timeouts: &BTreeSet<u32>) {
        for seconds in timeouts {
            let set = SetName::StickyFor(*seconds);
            self.parts.remove(&*format!("set {set}"));
            self.sizes.remove(&set);
        }
    }
}

impl From<&Layout> for LayoutPrint {
    fn from(layout: &Layout) -> Self {
        Self::new(&layout.chains, &layout.sets, &layout.rules)
    }
}

/// Whether a part depends on the affinity timeouts in use, as [`LayoutPrint::differences`] names it.
pub(super) fn is_of_affinity(name: &str) -> bool {
    let set = name.strip_prefix("set ").map(str::parse);
    matches!(set, Some(Ok(SetName::StickyFor(_))))
        || chain_of_rules(name).is_some_and(|chain| LEARN_CHAINS.contains(&chain))
}

fn rules_of(chain: &str) -> Arc<str> {
    format!("content of chain {chain}").into()
}

/// The chain of a part that is the rules of a chain, as [`LayoutPrint::differences`] names it.
pub(super) fn chain_of_rules(name: &str) -> Option<&str> {
    name.strip_prefix("content of chain ")
}

/// Hashes the debug form of values, which names every field.
#[derive(Default)]
struct Hasher(Xxh3);

impl Hasher {
    fn add(&mut self, value: &impl fmt::Debug) {
        // Writing to a hash never fails.
        _ = write!(self, "{value:?};");
    }
}

impl Write for Hasher {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}
