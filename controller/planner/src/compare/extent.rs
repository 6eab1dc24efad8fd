//! On how many nodes something is so, and which they are, in a few words.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan_plan::NodeEntry;

/// How many names an extent holds: people know where to look, and thousands of Services on thousands
/// of nodes stay small.
pub(super) const NAMES: usize = 10;

/// Some nodes of all those that count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extent {
    /// How many.
    pub count: usize,
    /// Of how many.
    pub of: usize,
    /// The zones they are in, `None` for nodes without one, in order.
    pub zones: BTreeMap<Option<Arc<str>>, ZoneShare>,
    /// The first ten of them by name.
    pub names: Vec<Arc<str>>,
}

/// Some nodes of one zone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ZoneShare {
    /// How many.
    pub count: usize,
    /// Of how many in the zone.
    pub of: usize,
}

impl Extent {
    /// These nodes, which are in order.
    pub(super) fn new(totals: &ZoneTotals, nodes: &[&NodeEntry]) -> Self {
        let mut extent = Self {
            count: nodes.len(),
            of: totals.all,
            names: nodes.iter().take(NAMES).map(|n| n.name.clone()).collect(),
            ..Self::default()
        };
        let mut counts: BTreeMap<Option<&Arc<str>>, usize> = BTreeMap::new();
        for node in nodes {
            *counts.entry(node.zone.as_ref()).or_default() += 1;
        }
        for (zone, count) in counts {
            let zone = zone.cloned();
            let of = totals.zones.get(&zone).copied().unwrap_or_default();
            extent.zones.insert(zone, ZoneShare { count, of });
        }
        extent
    }

    /// Whether it is no node at all.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// How many nodes there are in each zone.
#[derive(Debug, Default)]
pub(super) struct ZoneTotals {
    all: usize,
    zones: BTreeMap<Option<Arc<str>>, usize>,
}

impl ZoneTotals {
    pub(super) fn of<'a>(nodes: impl Iterator<Item = &'a Arc<NodeEntry>>) -> Self {
        let mut counts: BTreeMap<Option<&Arc<str>>, usize> = BTreeMap::new();
        for node in nodes {
            *counts.entry(node.zone.as_ref()).or_default() += 1;
        }
        Self {
            all: counts.values().sum(),
            zones: counts.into_iter().map(|(z, n)| (z.cloned(), n)).collect(),
        }
    }
}
