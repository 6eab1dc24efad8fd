//! How much is held.

use std::sync::PoisonError;

use super::Store;

impl Store {
    /// How many nodes have a plan.
    pub fn nodes(&self) -> usize {
        let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
        plans.nodes.len()
    }
}
