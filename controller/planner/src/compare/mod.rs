//! Compares the plans of two clusters, or of one cluster before and after a change: which Services changed, how, and
//! on how many nodes.
//!
//! Pure. The cost is not Services times nodes: equal plans are skipped, nodes with equal entries are compared once,
//! grouped by their zones, and only nodes that a Service names are compared one by one.

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

/// The plans of a cluster, before or after. They are borrowed from a planner without copies.
#[derive(Debug, Clone, Default)]
pub struct Plans {
    /// The plans of all Services.
    pub services: BTreeMap<ServiceId, Arc<PlannedService>>,
    /// The entries of all nodes, by name.
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

/// Whether an object was added, removed or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// Exists only after.
    New,
    /// Exists only before.
    Gone,
    /// Exists before and after, and differs.
    Changed,
}

/// The values before and after.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Was<T> {
    /// The value before.
    pub before: T,
    /// The value after.
    pub after: T,
}

impl<T: PartialEq> Was<T> {
    /// Both values, if they differ.
    pub fn unless_equal(before: T, after: T) -> Option<Self> {
        (before != after).then_some(Self { before, after })
    }
}

/// The differences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Changed Services, in order.
    pub services: BTreeMap<ServiceId, ServiceDifference>,
    /// Nodes that were added, removed or changed themselves; equal changes are grouped.
    pub nodes: Vec<NodeDifference>,
    /// The nodes on which some Service changed, of those that exist before and after.
    pub differing: Extent,
    /// Number of Services, before and after.
    pub service_count: Was<usize>,
    /// Number of nodes, before and after.
    pub node_count: Was<usize>,
    /// Number of comparisons of a Service for a node or a group of equal nodes, as a measure of the cost.
    pub compared: usize,
}

impl Difference {
    /// The differences in the whole cluster.
    pub fn between(before: &Plans, after: &Plans) -> Self {
        Self::seen_by(None, before, after)
    }

    /// The differences on one node. For a node that does not exist before and after, no Services are compared.
    pub fn on_node(node: &str, before: &Plans, after: &Plans) -> Self {
        Self::seen_by(Some(node), before, after)
    }

    fn seen_by(only: Option<&str>, before: &Plans, after: &Plans) -> Self {
        let roster = Roster::new(only, before, after);
        let mut differing = roster.no_nodes();
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

/// All Services of both, each once, in order.
fn ids<'a>(before: &'a Plans, after: &'a Plans) -> Vec<&'a ServiceId> {
    let new = after.services.keys();
    let new = new.filter(|id| !before.services.contains_key(*id));
    let mut ids: Vec<_> = before.services.keys().chain(new).collect();
    ids.sort_unstable();
    ids
}
