//! What the controller knows of the cluster: one writer, the engine; readers are whoever publishes.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use portolan_planner::Planner;
use portolan_planner::model::ObjectId;

/// The cluster and the plans made from it.
#[derive(Debug, Default)]
pub struct Known {
    /// The planner with everything that could be read.
    pub planner: Planner,
    /// Objects that are there and cannot be read: the field, what is wrong, what to check next.
    /// The last form that could be read stays planned (S-183).
    pub left_out: BTreeMap<ObjectId, String>,
    /// Nothing is planned before a loss is over that others hold.
    pub waits: bool,
}

/// What is known, shared.
#[derive(Debug, Clone, Default)]
pub struct Shared(Arc<RwLock<Known>>);

impl Shared {
    /// For reading. Keep it short: nothing is planned meanwhile.
    pub fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// For whoever alone writes: the engine.
    pub fn write(&self) -> RwLockWriteGuard<'_, Known> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
