//! The extent of a change: the number of nodes, and a few of their names.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan_plan::NodeEntry;

/// Maximum number of names in an extent: enough to find an example, and small with thousands of Services on thousands
/// of nodes.
pub(super) const MAX_NAMES: usize = 10;

/// Some of the considered nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extent {
    /// Number of nodes.
    pub count: usize,
    /// Number of considered nodes.
    pub of: usize,
    /// Their zones in order, `None` for nodes without a zone.
    pub zones: BTreeMap<Option<Arc<str>>, ZoneShare>,
    /// The first ten by name.
    pub names: Vec<Arc<str>>,
}

/// Some nodes of one zone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ZoneShare {
    /// Number of nodes.
    pub count: usize,
    /// Number of considered nodes in the zone.
    pub of: usize,
}

impl Extent {
    /// The extent of these nodes, which are in order.
    pub(super) fn new(totals: &ZoneTotals, nodes: &[&NodeEntry]) -> Self {
        let mut extent = Self {
            count: nodes.len(),
            of: totals.all,
            names: nodes
                .iter()
                .take(MAX_NAMES)
                .map(|n| n.name.clone())
                .collect(),
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

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Number of nodes in each zone.
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
