//! Messages of an agent beside its acknowledgements: the node's status and newer tokens.
//!
//! Touches: no input or output; the queue of outgoing messages.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::PlanHash;
use portolan_proto::wire;
use portolan_reconcile::Drift;
use tokio::sync::{mpsc, watch};

use super::token::Renewals;
use super::{Session, StreamError};
use crate::health::{ClosedChecks, Health};
use crate::programmer::{Applied, Troubles};

/// Sources and last reported values of the node's status, and of its token.
pub(super) struct StatusReporter {
    applied: watch::Receiver<Applied>,
    /// The last reported drift.
    drift: Drift,
    /// The last reported hash of the applied plan. Acknowledgements report it too, but after a failure it changes
    /// later.
    pub(super) hash: PlanHash,
    /// The last reported state of Services.
    pub(super) troubles: Arc<Troubles>,
    /// Addresses on which the agent cannot listen.
    closed: watch::Receiver<BTreeSet<String>>,
    /// Health check ports on which it cannot.
    pub(super) closed_checks: watch::Receiver<ClosedChecks>,
    /// Kernel settings that cannot be written.
    unwritten: watch::Receiver<BTreeSet<String>>,
    renewals: Renewals,
}

impl StatusReporter {
    pub(super) fn new(
        applied: watch::Receiver<Applied>,
        health: &Health,
        renewals: Renewals,
    ) -> Self {
        Self {
            applied,
            drift: Drift::default(),
            hash: PlanHash::default(),
            troubles: Arc::default(),
            closed: health.closed(),
            closed_checks: health.closed_checks(),
            unwritten: health.unwritten(),
            renewals,
        }
    }
}

/// Waits for a change of the node's status or for a newer token, and reports it.
pub(super) async fn report(
    answers: &mpsc::Sender<wire::AgentMessage>,
    draining: &mut watch::Receiver<BTreeSet<IpAddr>>,
    reporter: &mut StatusReporter,
) -> Result<(), StreamError> {
    let StatusReporter {
        applied,
        drift,
        hash,
        troubles,
        closed,
        closed_checks,
        unwritten,
        renewals,
    } = reporter;
    // Reserve first: this future may be cancelled at each await, and a change must not be marked as seen by then.
    let room = answers.reserve().await.map_err(|_| StreamError::Closed)?;
    let changed = tokio::select! {
        // The result of a pass first: the status below then contains all changes, and none is sent twice.
        biased;
        applied = applied.wait_for(|applied| {
            applied.drift != *drift || applied.hash != *hash || applied.troubles != *troubles
        }) => {
            let reported = |applied: &Applied| {
                (applied.drift.clone(), applied.hash, applied.troubles.clone())
            };
            applied.map(|applied| Some(reported(&applied)))
        }
        changed = draining.changed() => changed.map(|()| None),
        changed = closed.changed() => changed.map(|()| None),
        changed = closed_checks.changed() => changed.map(|()| None),
        changed = unwritten.changed() => changed.map(|()| None),
        token = renewals.newer() => {
            room.send(Session::renewal(&token));
            return Ok(());
        }
    };
    if let Some(applied) = changed.map_err(|_| StreamError::Ending)? {
        (*drift, *hash, *troubles) = applied;
    }
    let (draining, closed) = (draining.borrow_and_update(), closed.borrow_and_update());
    let (closed_checks, unwritten) = (
        closed_checks.borrow_and_update(),
        unwritten.borrow_and_update(),
    );
    room.send(Session::status(
        &draining,
        drift,
        [&*closed, &*unwritten],
        *hash,
        (&**troubles, &*closed_checks),
    ));
    Ok(())
}

/// Queues a message for the controller.
pub(super) async fn send(
    answers: &mpsc::Sender<wire::AgentMessage>,
    message: wire::AgentMessage,
) -> Result<(), StreamError> {
    answers.send(message).await.map_err(|_| StreamError::Closed)
}
