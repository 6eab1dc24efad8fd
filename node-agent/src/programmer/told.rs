//! Logging of passes: each new plan, and other passes only if they changed something or failed.

use portolan_proto::TraceContext;
use tracing::field::display;
use tracing::{debug, error, info};

use super::Applied;
use crate::slot::Source;

/// Reason for a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The plan changed.
    Changed,
    /// The node's network changed.
    Disturbed,
    /// The previous pass failed.
    Failed,
    /// The previous pass postponed some scheduler changes.
    PutOff,
    /// The sync period has elapsed.
    Due,
}

/// Logs the result of a pass, and for a new plan also its trace.
pub(super) fn log_pass(applied: &Applied, why: Why, source: Source, trace: Option<TraceContext>) {
    let trace = trace.filter(|_| why == Why::Changed);
    for failure in &applied.failures {
        error!("{failure}");
    }
    if applied.failed > 0 {
        not_in_force(applied, trace);
    } else {
        in_force(applied, why, source, trace);
    }
}

fn not_in_force(applied: &Applied, trace: Option<TraceContext>) {
    let (failed, operations) = (applied.failed, applied.operations);
    let milliseconds = applied.took.as_millis();
    let trace_id = trace.map(display);
    error!(
        failed,
        operations, milliseconds, trace_id, "the plan is not fully in force; retrying"
    );
}

fn in_force(applied: &Applied, why: Why, source: Source, trace: Option<TraceContext>) {
    let operations = applied.operations;
    let milliseconds = applied.took.as_millis();
    if source != Source::Controller && why == Why::Changed {
        info!(plan = %applied.hash, operations, milliseconds, "the saved plan is in force");
    } else if let Why::Changed | Why::Failed = why {
        let services = applied.services;
        let trace_id = trace.map(display);
        info!(plan = %applied.hash, services, operations, milliseconds, trace_id, "applied");
    } else if operations > 0 {
        by_itself(operations, milliseconds, why);
    } else {
        debug!(milliseconds, "verified");
    }
}

/// Logs operations of a pass without a change of the plan.
fn by_itself(operations: usize, milliseconds: u128, why: Why) {
    match why {
        Why::PutOff => info!(operations, milliseconds, "changed more schedulers"),
        Why::Disturbed => info!(
            operations,
            milliseconds, "adapted to a change of the node's network"
        ),
        _ => info!(operations, milliseconds, "corrected drift"),
    }
}
