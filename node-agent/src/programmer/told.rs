//! What the log says of passes: a new plan always, the rest only where something was done or failed.

use portolan_proto::TraceContext;
use tracing::field::display;
use tracing::{debug, error, info};

use super::Applied;
use crate::slot::Source;

/// Why there is a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The plan changed.
    Changed,
    /// The node's network changed.
    Disturbed,
    /// The pass before failed.
    Failed,
    /// The pass before put off some scheduler changes.
    PutOff,
    /// The sync period is over.
    Due,
}

/// Tells what came of a pass, and of a new plan to which trace it belongs.
pub(super) fn tell(applied: &Applied, why: Why, source: Source, trace: Option<TraceContext>) {
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
        operations, milliseconds, trace_id, "the plan is not in force; trying again"
    );
}

fn in_force(applied: &Applied, why: Why, source: Source, trace: Option<TraceContext>) {
    let operations = applied.operations;
    let milliseconds = applied.took.as_millis();
    if source != Source::Controller && why == Why::Changed {
        info!(plan = %applied.hash, operations, milliseconds, "what is on disk of the plan is in force");
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

/// What was written though the plan is the one before.
fn by_itself(operations: usize, milliseconds: u128, why: Why) {
    match why {
        Why::PutOff => info!(operations, milliseconds, "changed more schedulers"),
        Why::Disturbed => info!(operations, milliseconds, "followed the node's network"),
        _ => info!(operations, milliseconds, "put right what was otherwise"),
    }
}
