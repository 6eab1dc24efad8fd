//! Scenarios of the controller on a real API server.

mod agent_waves;
mod audit;
mod bad_input;
mod bulk;
mod churn;
mod guard;
mod install;
mod memory;
mod objects;
mod printed;
mod release;
mod replicas;
mod rig;
mod rollout;
mod rules;
mod stores;
mod tenants;
mod traces;
mod trust;

pub(super) use agent_waves::SCENARIO as AGENTS;
pub(super) use bad_input::SCENARIO as BAD_INPUT;
pub(super) use churn::SCENARIO as CHURN;
pub(super) use guard::SCENARIO as GUARD;
pub(super) use install::SCENARIO as INSTALL;
pub(super) use memory::SCENARIO as MEMORY;
pub(super) use objects::SCENARIO as OBJECTS;
pub(super) use replicas::SCENARIO as REPLICAS;
pub(super) use rollout::SCENARIO as WAVES;
pub(super) use rules::SCENARIO as RULES;
pub(super) use stores::SCENARIO as STORES;
pub(super) use tenants::SCENARIO as TENANTS;
pub(super) use traces::SCENARIO as TRACES;
pub(super) use trust::SCENARIO as TRUST;
