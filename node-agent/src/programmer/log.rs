//! Logging of passes: each new plan, and other passes only if they changed something or failed.

use portolan_proto::TraceContext;
use tracing::field::display;
use tracing::{debug, error, info};

use super::Applied;
use crate::plan_watch::Source;

/// Reason for a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PassReason {
    /// The plan changed.
    Changed,
    /// The node's network changed.
    Disturbed,
    /// The previous pass failed.
    Failed,
    /// The previous pass postponed some changes.
    Postponed,
    /// The sync period has elapsed.
    Due,
    /// As [`PassReason::Due`], and Services are again as their objects ask.
    Resolved,
}

/// Logs the result of a pass, and for a new plan also its trace.
pub(super) fn log_pass(
    applied: &Applied,
    why: PassReason,
    source: Source,
    trace: Option<TraceContext>,
) {
    let trace = trace.filter(|_| why == PassReason::Changed);
    for failure in &applied.failures {
        error!("{failure}");
    }
    if applied.failed > 0 {
        log_failure(applied, trace);
    } else {
        log_success(applied, why, source, trace);
    }
}

fn log_failure(applied: &Applied, trace: Option<TraceContext>) {
    let (failed, operations) = (applied.failed, applied.operations);
    let milliseconds = applied.took.as_millis();
    let trace_id = trace.map(display);
    error!(
        failed,
        operations, milliseconds, trace_id, "the plan is not fully in force; retrying"
    );
}

fn log_success(applied: &Applied, why: PassReason, source: Source, trace: Option<TraceContext>) {
    let operations = applied.operations;
    let milliseconds = applied.took.as_millis();
    if source != Source::Controller && why == PassReason::Changed {
        info!(plan = %applied.hash, operations, milliseconds, "the saved plan is in force");
    } else if let PassReason::Changed | PassReason::Failed = why {
        let services = applied.services;
        let trace_id = trace.map(display);
        info!(
            plan = %applied.hash, services, operations, milliseconds, trace_id,
            "the plan is in force"
        );
    } else if operations > 0 {
        log_unchanged_plan(operations, milliseconds, why);
    } else {
        debug!(milliseconds, "verified");
    }
}

/// Logs operations of a pass without a change of the plan.
fn log_unchanged_plan(operations: usize, milliseconds: u128, why: PassReason) {
    let done = match why {
        PassReason::Postponed => "did what an earlier pass postponed",
        PassReason::Disturbed => "adapted to a change of the node's network",
        PassReason::Resolved => "did what was not possible for some Services before",
        _ => "corrected drift",
    };
    info!(operations, milliseconds, "{done}");
}
