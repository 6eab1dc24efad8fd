//! Which nodes have received a change, in a form whose size does not depend on the cluster.
//!
//! Within a scope, nodes receive a change in the order of a hash of their names: nodes with similar names often form
//! one pool, and a batch should not consist of one pool only.

use std::collections::BTreeSet;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

/// Which nodes have received a change. A node that joins is included if others at its position are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// The canaries.
    pub nodes: BTreeSet<Arc<str>>,
    /// Completed zones; an empty string means nodes without a zone.
    pub zones: BTreeSet<Arc<str>>,
    /// The scope in progress.
    pub partly: Option<Partly>,
}

/// The completed part of a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partly {
    /// The scope.
    pub scope: Scope,
    /// It includes nodes with a position up to this one.
    pub through: u64,
}

/// The nodes of a wave.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// A zone; an empty string means nodes without a zone.
    Zone(Arc<str>),
    /// All nodes.
    All,
}

impl Scope {
    /// Whether it contains a zone.
    pub fn holds(&self, zone: &str) -> bool {
        match self {
            Self::Zone(own) => **own == *zone,
            Self::All => true,
        }
    }
}

impl Reach {
    /// Whether a node with this name and zone has received the change.
    pub fn includes(&self, name: &str, zone: &str) -> bool {
        let partly = self.partly.as_ref();
        self.nodes.contains(name)
            || self.zones.contains(zone)
            || partly.is_some_and(|part| part.scope.holds(zone) && place(name) <= part.through)
    }
}

/// The position of a node in the rollout order.
pub(crate) fn place(name: &str) -> u64 {
    xxh3_64(name.as_bytes())
}
