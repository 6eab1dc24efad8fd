//! Keeps the tables of the nftables dataplane as the plan demands: reads, compares, commits, repairs, retries.
//!
//! [`TablesKeeper`] is the counterpart of what `programmer` does for IPVS. It makes no decision about when to run: its
//! caller reconciles after a change of the plan, after a failure, in each sync period and after a disturbance.
//! `portolan_reconcile::nftables` computes what has to be written.

mod attempt;
mod committer;
mod drains;
mod drift;
mod extent;
mod flows;
mod handover;
mod keeper;
mod outcome;
mod recorder;
mod retry;

pub use drains::DrainCount;
pub use drift::TablesDrift;
pub use flows::FlowCleanup;
pub use handover::Handover;
pub use keeper::{ReconcileOptions, TablesKeeper};
pub use outcome::{TablesFailure, TablesOutcome};
