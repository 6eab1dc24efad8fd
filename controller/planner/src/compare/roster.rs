//! The nodes that exist before and after, grouped by equal plans.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan_plan::NodeEntry;

use super::extent::{Extent, MAX_NAMES, ZoneShare};
use super::node_set::NodeSet;
use super::{Plans, Was};

/// The entries of one node.
pub(super) type NodePair<'a> = Was<&'a NodeEntry>;

/// Nodes that exist before and after, in the order of their names.
pub(super) struct Roster<'a> {
    nodes: Vec<NodePair<'a>>,
    groups: Vec<Group>,
    /// The nodes of each zone, by their zones after.
    zones: BTreeMap<Option<&'a Arc<str>>, NodeSet>,
}

/// Nodes with the same zone before and the same zone after. A Service that names none of them has the same entries
/// for all of them, before and after.
pub(super) struct Group {
    pub(super) nodes: NodeSet,
    /// Whether the zone changed.
    pub(super) moved: bool,
}

impl<'a> Roster<'a> {
    /// All nodes, or only one.
    pub(super) fn new(only: Option<&str>, before: &'a Plans, after: &'a Plans) -> Self {
        let wanted = |name: &str| only.is_none_or(|only| only == name);
        let both = before.nodes.iter().filter(|(name, _)| wanted(name));
        let both = both.filter_map(|(name, node)| {
            Some(Was {
                before: &**node,
                after: &**after.nodes.get(name)?,
            })
        });
        let nodes: Vec<NodePair<'a>> = both.collect();
        let mut pairs: BTreeMap<_, NodeSet> = BTreeMap::new();
        let mut zones: BTreeMap<_, NodeSet> = BTreeMap::new();
        let empty = || NodeSet::empty(nodes.len());
        for (place, node) in nodes.iter().enumerate() {
            let (before, after) = (node.before.zone.as_ref(), node.after.zone.as_ref());
            let pair = pairs.entry((before, after)).or_insert_with(empty);
            pair.insert(place);
            zones.entry(after).or_insert_with(empty).insert(place);
        }
        let group = |((before, after), nodes)| Group {
            nodes,
            moved: before != after,
        };
        Self {
            groups: pairs.into_iter().map(group).collect(),
            zones,
            nodes,
        }
    }

    pub(super) fn no_nodes(&self) -> NodeSet {
        NodeSet::empty(self.nodes.len())
    }

    pub(super) fn all_nodes(&self) -> NodeSet {
        let mut all = self.no_nodes();
        for group in &self.groups {
            all.add(&group.nodes);
        }
        all
    }

    /// The node at an index.
    pub(super) fn node(&self, place: usize) -> &NodePair<'a> {
        &self.nodes[place]
    }

    /// The only node, if the roster is limited to one.
    pub(super) fn only(&self) -> Option<&NodePair<'a>> {
        self.nodes.first().filter(|_| self.nodes.len() == 1)
    }

    /// The index of a node; `None` if it does not exist before and after.
    pub(super) fn place(&self, name: &Arc<str>) -> Option<usize> {
        let found = self
            .nodes
            .binary_search_by(|node| node.before.name.cmp(name));
        found.ok()
    }

    pub(super) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Whether the zone of some node changed.
    pub(super) fn has_moved(&self) -> bool {
        self.groups.iter().any(|group| group.moved)
    }

    /// The nodes of a set, with their zones after.
    pub(super) fn extent(&self, nodes: &NodeSet) -> Extent {
        let shares = self.zones.iter().map(|(zone, all)| {
            let share = ZoneShare {
                count: all.within(nodes).len(),
                of: all.len(),
            };
            (zone.cloned(), share)
        });
        let first = nodes.iter().take(MAX_NAMES);
        Extent {
            count: nodes.len(),
            of: self.nodes.len(),
            zones: shares.filter(|(_, share)| share.count > 0).collect(),
            names: first.map(|p| self.nodes[p].after.name.clone()).collect(),
        }
    }
}
