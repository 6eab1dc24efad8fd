//! What an agent answers to a batch.

use portolan_proto::wire;
use portolan_proto::wire::agent_message::Message as Answer;
use tonic::{Status, Streaming};
use tracing::{debug, warn};

use super::session::End;

/// Waits for the answer to a batch; false when the agent needs the whole plan.
pub(super) async fn wait(
    answers: &mut Streaming<wire::AgentMessage>,
    hello: &wire::Hello,
    number: u64,
    snapshot: bool,
) -> Result<bool, End> {
    let Some(message) = answers.message().await? else {
        return Err(End::Gone);
    };
    let ack = match message.message {
        Some(Answer::Ack(ack)) if ack.batch == number => ack,
        _ => {
            let wrong = format!("an answer to batch {number} was expected");
            return Err(End::Refused(Status::invalid_argument(wrong)));
        }
    };
    report(&hello.node, &ack);
    if ack.refused && snapshot {
        // The same bytes would be refused again, at once and for ever.
        let wrong = "a whole plan was refused by its hash; both sides have to be looked at";
        return Err(End::Refused(Status::data_loss(wrong)));
    }
    Ok(!ack.refused)
}

fn report(node: &str, ack: &wire::Ack) {
    for failure in &ack.failures {
        not_in_force(node, failure);
    }
    for entry in &ack.undecodable {
        not_read(node, entry);
    }
    if ack.refused {
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
        entry, "the agent cannot read this entry; is it older than the controller?"
    );
}

fn differs(node: &str) {
    warn!(
        node,
        "the agent holds another plan than it should; sending all of it"
    );
}
