//! What differs between the plans of two clusters, or of one cluster at two moments: for every
//! Service, what and on how many nodes.
//!
//! Pure values in, a value out. Nothing goes through Services times nodes: a Service whose plan is
//! equal is passed over, and of the others' nodes those that see the same are compared once, by the
//! zones they are in; only nodes that the Service itself names are looked at one by one.

mod ends;
mod extent;
mod loss;
mod node_set;
mod nodes;
mod roster;
mod served;
mod service;
mod sides;
mod terms;

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan_plan::{NodeEntry, ServiceId};

pub use ends::{EndpointChange, PortFrontend, PortName};
pub use extent::{Extent, ZoneShare};
pub use loss::{Lost, Unknown};
pub use nodes::{NodeDifference, NodeFields};
pub use served::{Clients, Served, ServedBy, ServedChange};
pub use service::{Left, ServiceDifference};
pub use terms::{Term, TermChange};

use crate::{PlannedService, Planner};
use roster::Roster;

/// The plans of a cluster at one moment. Taking them from a planner copies no plan.
#[derive(Debug, Clone, Default)]
pub struct Plans {
    /// Of all Services.
    pub services: BTreeMap<ServiceId, Arc<PlannedService>>,
    /// Of all nodes, by name.
    pub nodes: BTreeMap<Arc<str>, Arc<NodeEntry>>,
}

impl From<&Planner> for Plans {
    fn from(planner: &Planner) -> Self {
        Self {
            services: planner.services().clone(),
            nodes: planner.nodes().clone(),
        }
    }
}

/// Whether something is there before, after, or both times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// Only after.
    New,
    /// Only before.
    Gone,
    /// Both times, and it differs.
    Changed,
}

/// Before and after.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Was<T> {
    /// What it was.
    pub before: T,
    /// What it is.
    pub after: T,
}

impl<T: PartialEq> Was<T> {
    /// Both values, if they differ.
    pub fn unless_equal(before: T, after: T) -> Option<Self> {
        (before != after).then_some(Self { before, after })
    }
}

/// What differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Services that differ, in order.
    pub services: BTreeMap<ServiceId, ServiceDifference>,
    /// Nodes that are new, gone or changed themselves; those that differ alike are told together.
    pub nodes: Vec<NodeDifference>,
    /// The nodes on which some Service differs, of those that are there both times.
    pub differing: Extent,
    /// How many Services there are, before and after.
    pub service_count: Was<usize>,
    /// How many nodes there are, before and after.
    pub node_count: Was<usize>,
    /// How often a Service was compared for a node, or for nodes that see the same: what the
    /// difference cost.
    pub compared: usize,
}

impl Difference {
    /// What differs in the whole cluster.
    pub fn between(before: &Plans, after: &Plans) -> Self {
        Self::seen_by(None, before, after)
    }

    /// What differs on one node. A node that is not there both times has no Services to compare.
    pub fn on_node(node: &str, before: &Plans, after: &Plans) -> Self {
        Self::seen_by(Some(node), before, after)
    }

    fn seen_by(only: Option<&str>, before: &Plans, after: &Plans) -> Self {
        let roster = Roster::new(only, before, after);
        let mut differing = roster.nobody();
        let mut compared = 0;
        let mut services = BTreeMap::new();
        for id in ids(before, after) {
            let pair = Was {
                before: before.services.get(id).map(AsRef::as_ref),
                after: after.services.get(id).map(AsRef::as_ref),
            };
            let found = service::compare(&roster, &pair, only.is_some(), &mut compared);
            if let Some((difference, nodes)) = found {
                differing.add(&nodes);
                services.insert(id.clone(), difference);
            }
        }
        Self {
            services,
            nodes: nodes::compare(only, before, after),
            differing: roster.extent(&differing),
            service_count: Was {
                before: before.services.len(),
                after: after.services.len(),
            },
            node_count: Was {
                before: before.nodes.len(),
                after: after.nodes.len(),
            },
            compared,
        }
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty() && self.nodes.is_empty()
    }
}

/// The Services of both, each once, in order.
fn ids<'a>(before: &'a Plans, after: &'a Plans) -> Vec<&'a ServiceId> {
    let new = after.services.keys();
    let new = new.filter(|id| !before.services.contains_key(*id));
    let mut ids: Vec<_> = before.services.keys().chain(new).collect();
    ids.sort_unstable();
    ids
}
