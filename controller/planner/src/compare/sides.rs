//! The plans of one Service before and after.

use std::collections::BTreeSet;

use portolan_plan::ListKey;

use super::node_set::NodeSet;
use super::roster::{NodePair, Roster};
use super::served::{OnNode, Shift, shifts};
use crate::PlannedService;

/// Both plans, and which of their lists differ: needed for every node, so computed once.
pub(super) struct Sides<'a> {
    before: &'a PlannedService,
    after: &'a PlannedService,
    renewed: BTreeSet<&'a ListKey>,
}

impl<'a> Sides<'a> {
    pub(super) fn new(before: &'a PlannedService, after: &'a PlannedService) -> Self {
        let renewed = before.lists.iter();
        let renewed = renewed.filter(|(key, list)| {
            let other = after.lists.get(*key);
            other.is_some_and(|other| other != *list)
        });
        Self {
            renewed: renewed.map(|(key, _)| key).collect(),
            before,
            after,
        }
    }

    /// Whether an entry of a node changed.
    pub(super) fn differ_on(&self, node: &NodePair<'_>) -> bool {
        let old = self.before.lists_for(node.before).map(|(key, _)| key);
        let mut old = old.collect::<Vec<_>>().into_iter();
        let mut new = self.after.lists_for(node.after).map(|(key, _)| key);
        self.before.head_for(node.before) != self.after.head_for(node.after)
            || self.own_differ_on(node)
            || new.any(|key| old.next() != Some(key) || self.renewed.contains(key))
            || old.next().is_some()
    }

    /// Whether the node's own endpoints changed, ready or not, or its health check response.
    pub(super) fn own_differ_on(&self, node: &NodePair<'_>) -> bool {
        self.before.local_for(&node.before.name) != self.after.local_for(&node.after.name)
    }

    /// The changed lists of a node.
    pub(super) fn shifts_on(&self, node: &NodePair<'_>) -> Vec<Shift> {
        let on = |planned, node| OnNode { planned, node };
        let renewed = |key: &ListKey| self.renewed.contains(key);
        shifts(
            &on(self.before, node.before),
            &on(self.after, node.after),
            renewed,
        )
    }

    /// The nodes that one of the plans names. All others of a group have equal entries.
    pub(super) fn named(&self, roster: &Roster<'_>) -> NodeSet {
        let mut named = roster.no_nodes();
        for planned in [self.before, self.after] {
            let of_lists = planned.lists.keys().filter_map(|key| key.scope.node());
            let names = planned.head_of_node.keys().chain(planned.locals.keys());
            for place in names.chain(of_lists).filter_map(|name| roster.place(name)) {
                named.insert(place);
            }
        }
        named
    }
}

/// Whether two plans are equal for every node. All fields are named, so that a new field cannot be forgotten.
pub(super) fn are_alike(one: &PlannedService, other: &PlannedService) -> bool {
    let PlannedService {
        id: _,
        heads,
        head_of_zone,
        head_of_node,
        lists,
        locals,
        elsewhere,
        hints: _,
        warnings: _,
    } = one;
    std::ptr::eq(one, other)
        || (*heads == other.heads
            && *head_of_zone == other.head_of_zone
            && *head_of_node == other.head_of_node
            && *lists == other.lists
            && *locals == other.locals
            && *elsewhere == other.elsewhere)
}

/// Whether the entries of a node depend on its zone.
pub(super) fn depends_on_zone(planned: &PlannedService) -> bool {
    !planned.head_of_zone.is_empty()
}
