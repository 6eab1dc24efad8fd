//! Which nodes a change has reached, in a form whose size does not follow the cluster's.
//!
//! Within its scope a change reaches nodes in the order of a hash of their names: neighbours by name
//! are often one pool, and a batch should not be all of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

/// Which nodes a change has reached. A node that joins is reached if others at its place are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// The canaries.
    pub nodes: BTreeSet<Arc<str>>,
    /// Zones as a whole; the empty text stands for nodes without one.
    pub zones: BTreeSet<Arc<str>>,
    /// What is under way.
    pub partly: Option<Partly>,
}

/// The part of a scope that was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partly {
    /// The scope.
    pub scope: Scope,
    /// Nodes of it with a place up to this one.
    pub through: u64,
}

/// What a wave goes through.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// A zone; the empty text stands for nodes without one.
    Zone(Arc<str>),
    /// Everything.
    All,
}

impl Scope {
    /// Whether a zone is in it.
    pub fn holds(&self, zone: &str) -> bool {
        match self {
            Self::Zone(own) => **own == *zone,
            Self::All => true,
        }
    }
}

impl Reach {
    /// Whether a node of this name and zone is reached.
    pub fn includes(&self, name: &str, zone: &str) -> bool {
        let partly = self.partly.as_ref();
        self.nodes.contains(name)
            || self.zones.contains(zone)
            || partly.is_some_and(|part| part.scope.holds(zone) && place(name) <= part.through)
    }
}

/// Where a node stands among others.
pub(crate) fn place(name: &str) -> u64 {
    xxh3_64(name.as_bytes())
}
