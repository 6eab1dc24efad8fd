//! The controller's state of the cluster. The engine is its only writer; publishers read it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use portolan_planner::Planner;
use portolan_planner::model::ObjectId;

/// The cluster and the plans made from it.
#[derive(Debug, Default)]
pub struct ClusterState {
    /// The planner, with all objects that could be read.
    pub planner: Planner,
    /// Existing objects that cannot be read: the field, the problem and the next check. Plans keep using the last
    /// version that could be read (S-183).
    pub left_out: BTreeMap<ObjectId, String>,
    /// Planning waits until a loss of endpoints that other controllers hold is over.
    pub waits: bool,
}

/// The shared state.
#[derive(Debug, Clone, Default)]
pub struct Shared(Arc<RwLock<ClusterState>>);

impl Shared {
    /// Locks for reading. Hold the lock briefly: it blocks planning.
    pub fn read(&self) -> RwLockReadGuard<'_, ClusterState> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks for writing. Only the engine writes.
    pub fn write(&self) -> RwLockWriteGuard<'_, ClusterState> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
