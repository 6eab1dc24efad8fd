//! The Services that a node or a zone label affects, so that no change needs a scan of all Services.

use std::collections::BTreeSet;
use std::sync::Arc;

use portolan_plan::ServiceId;

use crate::PlannedService;
use crate::reverse::Reverse;

/// Indexes of planned Services.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Services with a list or a frontend of their own for a node.
    particular: Reverse<Arc<str>, ServiceId>,
    /// Services whose head for a node depends on the zone of the node.
    zoned: Reverse<Arc<str>, ServiceId>,
    /// Services with hints, effective or not.
    hinted: BTreeSet<ServiceId>,
}

impl Index {
    /// Updates the indexes after a change of a Service's plan.
    pub(crate) fn replace(
        &mut self,
        id: &ServiceId,
        old: Option<&PlannedService>,
        new: Option<&PlannedService>,
    ) {
        replace(&mut self.particular, id, own_lists(old), own_lists(new));
        replace(&mut self.zoned, id, zoned(old), zoned(new));
        if new.is_some_and(|planned| !planned.hints.is_empty()) {
            self.hinted.insert(id.clone());
        } else {
            self.hinted.remove(id);
        }
    }

    /// Services with a list or a frontend of their own for a node.
    pub(crate) fn particular_to(&self, node: &str) -> impl Iterator<Item = &ServiceId> {
        self.particular.get(node)
    }

    /// Services that must be planned again if the zone of a node changes.
    pub(crate) fn zoned_by(&self, node: &str) -> impl Iterator<Item = &ServiceId> {
        self.zoned.get(node)
    }

    /// Services with hints.
    pub(crate) fn hinted(&self) -> impl Iterator<Item = &ServiceId> {
        self.hinted.iter()
    }
}

fn own_lists(planned: Option<&PlannedService>) -> impl Iterator<Item = &Arc<str>> + Clone {
    planned.into_iter().flat_map(|p| p.nodes_with_own())
}

fn zoned(planned: Option<&PlannedService>) -> impl Iterator<Item = &Arc<str>> + Clone {
    planned.into_iter().flat_map(|p| p.nodes_by_zone())
}

fn replace<'a>(
    index: &mut Reverse<Arc<str>, ServiceId>,
    id: &ServiceId,
    old: impl Iterator<Item = &'a Arc<str>> + Clone,
    new: impl Iterator<Item = &'a Arc<str>> + Clone,
) {
    // Nearly always the same nodes have something of their own before and after.
    if old.clone().eq(new.clone()) {
        return;
    }
    let (old, new): (BTreeSet<_>, BTreeSet<_>) = (old.collect(), new.collect());
    for node in old.difference(&new) {
        index.remove(&***node, id);
    }
    for node in new.difference(&old) {
        index.insert((*node).clone(), id.clone());
    }
}
