//! Scenarios of the controller on a real API server.

mod audit;
mod bulk;
mod churn;
mod memory;
mod rig;
mod stores;

pub(super) use churn::SCENARIO as CHURN;
pub(super) use memory::SCENARIO as MEMORY;
pub(super) use stores::SCENARIO as STORES;
