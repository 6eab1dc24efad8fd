//! The version of the plans that is in force on a node.

use std::sync::Arc;

use crate::sync::{AtomicU64, Ordering};

/// The version of the plans that is completely in force on a node; 0 if unknown. The node's stream writes it at
/// every change, so it takes no lock.
#[derive(Debug, Clone, Default)]
pub struct InForce(Arc<AtomicU64>);

impl InForce {
    /// Records that the plan of this version is completely in force.
    pub fn reached(&self, version: u64) {
        self.0.store(version, Ordering::Release);
    }

    /// The version; 0 for none.
    pub fn version(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// A copy with the present version, which does not change.
    pub(super) fn frozen(&self) -> Self {
        Self(Arc::new(self.version().into()))
    }
}

impl PartialEq for InForce {
    fn eq(&self, other: &Self) -> bool {
        self.version() == other.version()
    }
}

impl Eq for InForce {}
