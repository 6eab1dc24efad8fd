//! The last received plan of each Service, by bucket, and the nodes to which a change is particular. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_plan::{Head, ServiceId};
use portolan_planner::PlannedService;

use super::slices::bucket;

/// The Services of all buckets. It holds the same values as the planner.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    buckets: BTreeMap<u8, BTreeMap<ServiceId, Arc<PlannedService>>>,
    services: usize,
}

impl Catalog {
    /// The number of Services.
    pub(super) fn len(&self) -> usize {
        self.services
    }

    /// The Services of a bucket, in order.
    pub(super) fn bucket(&self, bucket: u8) -> impl Iterator<Item = &PlannedService> {
        let services = self.buckets.get(&bucket).into_iter();
        services.flat_map(|services| services.values().map(AsRef::as_ref))
    }

    /// Replaces the plan of a Service. Returns the nodes to which the old or the new plan is particular.
    pub(super) fn replace(
        &mut self,
        id: &ServiceId,
        new: Option<&Arc<PlannedService>>,
    ) -> BTreeSet<Arc<str>> {
        let services = self.buckets.entry(bucket(id)).or_default();
        let old = match new {
            Some(new) => services.insert(id.clone(), new.clone()),
            None => services.remove(id),
        };
        self.services += usize::from(new.is_some());
        self.services -= usize::from(old.is_some());
        particular(old.as_deref(), new.map(AsRef::as_ref))
    }
}

/// The nodes whose ProxyPlan shows the difference between two plans of a Service.
fn particular(old: Option<&PlannedService>, new: Option<&PlannedService>) -> BTreeSet<Arc<str>> {
    let mut nodes = BTreeSet::new();
    differing(
        old.map(|planned| &planned.locals),
        new.map(|planned| &planned.locals),
        |node| {
            nodes.insert(node.clone());
        },
    );
    for (one, other) in [(old, new), (new, old)] {
        let place = |node| other.and_then(|other| other.head_of_node.get(node));
        let places = one.into_iter().flat_map(|one| &one.head_of_node);
        let moved = places.filter(|(node, here)| place(*node) != Some(here));
        nodes.extend(moved.map(|(node, _)| node.clone()));
    }
    if old.map(shared_heads) == new.map(shared_heads) {
        differing(
            old.map(|planned| &planned.lists),
            new.map(|planned| &planned.lists),
            |key| {
                nodes.extend(key.scope.node().cloned());
            },
        );
    } else {
        // Every node that shows the Service shows its frontends.
        let shown = old.into_iter().chain(new).flat_map(|planned| {
            let keys = planned.lists.keys();
            keys.filter_map(|key| key.scope.node().cloned())
        });
        nodes.extend(shown);
    }
    nodes
}

/// The heads, and which zones have which.
fn shared_heads(planned: &PlannedService) -> (&[Arc<Head>], &BTreeMap<Arc<str>, usize>) {
    (&planned.heads, &planned.head_of_zone)
}

/// Calls `differs` with the keys whose values differ. Equal values of two plans of a Service are shared, so comparing
/// pointers is enough.
fn differing<K: Ord, V>(
    old: Option<&BTreeMap<K, Arc<V>>>,
    new: Option<&BTreeMap<K, Arc<V>>>,
    mut differs: impl FnMut(&K),
) {
    let missing_in = |other: Option<&BTreeMap<K, Arc<V>>>, key: &K, value: &Arc<V>| {
        let same = other.and_then(|other| other.get(key));
        !same.is_some_and(|same| Arc::ptr_eq(same, value))
    };
    for (key, value) in old.into_iter().flatten() {
        if missing_in(new, key, value) {
            differs(key);
        }
    }
    for (key, value) in new.into_iter().flatten() {
        if missing_in(old, key, value) {
            differs(key);
        }
    }
}
