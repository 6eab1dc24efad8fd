//! Counts of the store's contents.

use std::sync::PoisonError;

use super::Store;

impl Store {
    /// Number of nodes with a plan.
    pub fn nodes(&self) -> usize {
        let plans = self.plans.read().unwrap_or_else(PoisonError::into_inner);
        plans.nodes.len()
    }
}
