//! Handles the answer of an agent to a batch.

use std::time::{Duration, Instant, SystemTime};

use portolan_plan::PlanHash;
use portolan_proto::wire;
use portolan_proto::wire::agent_message::Message as Answer;
use tonic::Status;
use tracing::{debug, warn};

use super::answers::Answers;
use super::confirmed::Confirmed;
use super::draining::Draining;
use super::drift;
use super::received::{self, Hello};
use super::session::End;
use super::trip::Trip;
use super::troubled;
use crate::agent_registry::{Acked, AgentRegistry};

/// Time after which a missing ack is reported, because an agent that hangs reports nothing itself. Longer than the
/// agent needs to detect its own stuck thread and to log where.
const ACK_OVERDUE_AFTER: Duration = Duration::from_secs(120);

/// What a stream needs to record about its agent.
#[derive(Debug)]
pub(super) struct AgentRecords {
    pub(super) draining: Draining,
    pub(super) confirmed: Confirmed,
}

/// A batch without an answer yet.
#[derive(Debug)]
pub(super) struct Sent {
    number: u64,
    snapshot: bool,
    made: Instant,
    /// The hash of the plan after it; known once all of it is produced.
    leads_to: PlanHash,
    pub(super) trip: Trip,
}

impl Sent {
    /// A batch of the plans at `made`.
    pub(super) fn new(number: u64, snapshot: bool, made: Instant, trip: Trip) -> Self {
        Self {
            number,
            snapshot,
            made,
            leads_to: PlanHash::default(),
            trip,
        }
    }

    /// Records that all of it is sent, and the hash of the plan after it.
    pub(super) fn handed(&mut self, leads_to: PlanHash) {
        self.leads_to = leads_to;
        self.trip.handed();
    }

    /// Whether the agent does not hold the plan after this batch: it reports so, or another hash. The next batch
    /// would apply to a plan that it does not have.
    fn is_missed(&self, ack: &wire::Ack) -> bool {
        let received = PlanHash::from_bytes(&ack.received_hash);
        ack.refused || received.is_some_and(|received| received != self.leads_to)
    }
}

/// Waits for the answer to a batch and records it on the registry. Returns false if the agent needs the whole plan.
/// Status messages received meanwhile are processed.
pub(super) async fn wait(
    answers: &mut Answers<'_>,
    hello: &Hello,
    sent: &Sent,
    registry: &AgentRegistry,
    records: &mut AgentRecords,
) -> Result<bool, End> {
    let number = sent.number;
    let overdue = tokio::time::sleep(ACK_OVERDUE_AFTER);
    tokio::pin!(overdue);
    let ack = loop {
        let message = tokio::select! {
            message = answers.message() => message?,
            () = &mut overdue, if !overdue.is_elapsed() => {
                silent(&hello.node, number);
                registry.overdue(&hello.node, SystemTime::now() - ACK_OVERDUE_AFTER);
                continue;
            }
        };
        let Some(message) = message else {
            return Err(End::Gone);
        };
        match message.message {
            Some(Answer::Ack(ack)) if ack.batch == number => break ack,
            Some(Answer::Status(update)) => status(&update, hello, registry, records)?,
            _ => {
                let wrong = format!("an answer to batch {number} was expected");
                return Err(End::Refused(Status::invalid_argument(wrong)));
            }
        }
    };
    let missed = sent.is_missed(&ack);
    let acked = acked(&ack, sent.made);
    report(&hello.node, &ack, &acked, missed);
    // Before the plan is recorded as in force, whose observers then look up this answer.
    sent.trip.answered(hello, &ack);
    exceptions(&hello.node, ack.troubles.as_ref(), registry);
    records.confirmed.applied(acked.applied);
    registry.acked(&hello.node, acked, SystemTime::now());
    if missed && sent.snapshot {
        // The same bytes would lead to the same refusal, at once and for ever.
        let wrong = "the agent rejected a whole plan by its hash; check the versions and logs of both sides";
        return Err(End::Refused(Status::data_loss(wrong)));
    }
    Ok(!missed)
}

/// Processes an agent's status of its node.
pub(super) fn status(
    status: &wire::Status,
    hello: &Hello,
    registry: &AgentRegistry,
    records: &mut AgentRecords,
) -> Result<(), End> {
    records.draining.take(status).map_err(End::Refused)?;
    exceptions(&hello.node, status.troubles.as_ref(), registry);
    // Older agents do not send it.
    if let Some(applied) = PlanHash::from_bytes(&status.applied_hash)
        && records.confirmed.applied(Some(applied))
    {
        registry.caught_up(&hello.node, SystemTime::now());
    }
    registry.drifted(&hello.node, drift::read(status));
    registry.closed_ports(&hello.node, received::texts(&status.closed_ports));
    registry.unwritten_settings(&hello.node, received::texts(&status.unwritten_settings));
    Ok(())
}

/// Records the Services that are not in force although the plan is. Before the plan counts as in force: an observer that
/// sees that has to see its exceptions, too.
fn exceptions(node: &str, troubles: Option<&wire::Troubles>, registry: &AgentRegistry) {
    if let Some(troubles) = troubles {
        registry.troubled(node, troubled::read(troubles));
    }
}

fn acked(ack: &wire::Ack, made: Instant) -> Acked {
    Acked {
        applied: PlanHash::from_bytes(&ack.applied_hash),
        received: PlanHash::from_bytes(&ack.received_hash).unwrap_or_default(),
        lag: made.elapsed(),
        operations: ack.operations,
        failures: received::texts(&ack.failures),
        failed_operations: ack.failed_operations,
        undecodable: received::texts(&ack.undecodable),
    }
}

/// Logs an answer. `acked` has those of its texts that are kept.
fn report(node: &str, ack: &wire::Ack, acked: &Acked, missed: bool) {
    for failure in &acked.failures {
        not_in_force(node, failure);
    }
    for entry in &acked.undecodable {
        not_read(node, entry);
    }
    if missed {
        differs(node);
    } else {
        let milliseconds = ack.apply_microseconds / 1000;
        debug!(
            node,
            batch = ack.batch,
            milliseconds,
            operations = ack.operations,
            "applied"
        );
    }
}

fn not_in_force(node: &str, failure: &str) {
    warn!(node, failure, "not in force on the node");
}

fn not_read(node: &str, entry: &str) {
    warn!(
        node,
        entry, "the agent cannot read this entry; check whether it is older than the controller"
    );
}

fn silent(node: &str, batch: u64) {
    let seconds = ACK_OVERDUE_AFTER.as_secs();
    warn!(
        node,
        batch, seconds, "the agent has not answered; check its log on the node for a stuck thread"
    );
}

fn differs(node: &str) {
    warn!(
        node,
        "the agent holds an unexpected plan; sending all of it"
    );
}
