//! Drift: changes that other programs made to the tables, as differences between the state that the agent left and the
//! state that is found.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use portolan_plan::Family;

use super::element::TableElement;
use super::observed::{ObservedTable, ObservedTables};

/// An object that differs from the state in which the agent left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableDrift {
    /// A table is missing.
    Table(Family),
    /// A chain (with its rules) or a set differs, is missing or unexpected: `chain pick`.
    Part(Family, Arc<str>),
    /// An element is missing.
    Missing(TableElement),
    /// An element is unexpected.
    Unexpected(TableElement),
}

impl TableDrift {
    /// The family of the table.
    pub fn family(&self) -> Family {
        match self {
            Self::Table(family) | Self::Part(family, _) => *family,
            Self::Missing(element) | Self::Unexpected(element) => element.family(),
        }
    }

    /// The kind of drift.
    pub fn kind(&self) -> TableDriftKind {
        match self {
            Self::Table(_) => TableDriftKind::Table,
            Self::Part(..) => TableDriftKind::Part,
            Self::Missing(_) => TableDriftKind::Missing,
            Self::Unexpected(_) => TableDriftKind::Unexpected,
        }
    }
}

/// A kind of drift. The displayed form is used for people and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableDriftKind {
    /// Missing tables.
    Table,
    /// Chains, rules of chains, and sets.
    Part,
    /// Missing elements.
    Missing,
    /// Unexpected elements.
    Unexpected,
}

impl TableDriftKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Table, Self::Part, Self::Missing, Self::Unexpected];

    /// The name of the kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Part => "chain or set",
            Self::Missing => "missing element",
            Self::Unexpected => "unexpected element",
        }
    }
}

impl fmt::Display for TableDriftKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// For people: `IPv4: missing endpoint TCP 10.96.0.1:443 slot 0 10.0.0.7:6443`.
impl fmt::Display for TableDrift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.family())?;
        match self {
            Self::Table(_) => f.write_str("the table is missing"),
            Self::Part(_, name) => write!(f, "{name} differs"),
            Self::Missing(element) => write!(f, "missing {element}"),
            Self::Unexpected(element) => write!(f, "unexpected {element}"),
        }
    }
}

/// The objects whose `found` state differs from the state that the agent left.
pub fn drift(left: &ObservedTables, found: &ObservedTables) -> Vec<TableDrift> {
    let mut drifted = Vec::new();
    for (family, was) in &left.tables {
        let Some(now) = found.tables.get(family) else {
            drifted.push(TableDrift::Table(*family));
            continue;
        };
        let parts = was.layout.differences(&now.layout).into_iter();
        drifted.extend(parts.map(|part| TableDrift::Part(*family, part)));
        let missing = surplus(*family, was, now);
        drifted.extend(missing.into_iter().map(TableDrift::Missing));
        let unexpected = surplus(*family, now, was);
        drifted.extend(unexpected.into_iter().map(TableDrift::Unexpected));
    }
    drifted
}

/// The elements of `left` that `right` does not have.
fn surplus(family: Family, left: &ObservedTable, right: &ObservedTable) -> Vec<TableElement> {
    let mut left = left.clone();
    left.frontends
        .retain(|key, held| right.frontends.get(key) != Some(&*held));
    let others = ObservedTable {
        frontends: left
            .frontends
            .keys()
            .filter_map(|key| Some((*key, right.frontends.get(key)?.clone())))
            .collect(),
        hairpins: right.hairpins.clone(),
        pods: right.pods.clone(),
        ranges: right.ranges.clone(),
        balancers: right.balancers.clone(),
        foreign: right.foreign.clone(),
        ..ObservedTable::default()
    };
    for element in others.elements(family) {
        left.delete(&element);
    }
    left.elements(family).collect()
}

/// The number of items of each kind, in words: `1 table, 2 missing elements`.
pub fn in_words(items: &[TableDrift]) -> String {
    let mut counts = BTreeMap::<_, usize>::new();
    for item in items {
        *counts.entry(item.kind()).or_default() += 1;
    }
    let words = counts.into_iter().map(|(kind, count)| match (count, kind) {
        (1, kind) => format!("1 {kind}"),
        (count, TableDriftKind::Part) => format!("{count} chains or sets"),
        (count, kind) => format!("{count} {kind}s"),
    });
    words.collect::<Vec<_>>().join(", ")
}
