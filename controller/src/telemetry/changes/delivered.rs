//! The result of a batch on one node.

use std::sync::Arc;
use std::time::SystemTime;

use portolan_proto::wire;

use crate::store::BatchCauses;

/// A batch that a node has answered.
#[derive(Debug, Clone)]
pub struct Delivered {
    /// Name of the node.
    pub node: Arc<str>,
    /// Version of the agent.
    pub agent_version: Arc<str>,
    /// The changes in the batch; never empty.
    pub causes: Arc<BatchCauses>,
    /// The span that waited for the answer, in the trace of the oldest change.
    pub span: [u8; 8],
    /// Number of the batch on its stream.
    pub batch: u64,
    /// When building the batch began.
    pub made: SystemTime,
    /// When the last part of it was handed to the network.
    pub handed: SystemTime,
    /// When the answer was received.
    pub at: SystemTime,
    /// The answer.
    pub answered: Answered,
}

/// Maximum number of a pass's steps that are kept. Agents have a third of that.
const MAX_STEPS: usize = 64;
/// Maximum length of a step's name, in characters.
const MAX_STEP_NAME_CHARS: usize = 64;
/// Maximum length of a failure, in characters.
const MAX_FAILURE_CHARS: usize = 1024;

fn kept(step: &wire::Step) -> wire::Step {
    wire::Step {
        name: start(&step.name, MAX_STEP_NAME_CHARS),
        ..*step
    }
}

fn start(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// An agent's answer to a batch.
#[derive(Debug, Clone, Default)]
pub struct Answered {
    /// Number of kernel operations.
    pub operations: u64,
    /// Number of failed kernel operations.
    pub failed: u64,
    /// The first failure message.
    pub failure: Option<String>,
    /// Whether the agent refused the batch. It is then sent the whole plan.
    pub refused: bool,
    /// The agent's timing, if it was requested and reported.
    pub timing: Option<wire::Timing>,
}

impl Answered {
    /// Reads an answer. The size of all parts is limited, because agents are not trusted to keep messages small.
    /// Timing is ignored unless it was requested (`asked`).
    pub fn of(ack: &wire::Ack, asked: bool) -> Self {
        let timing = ack.timing.as_ref().filter(|_| asked);
        Self {
            operations: ack.operations,
            failed: ack.failed_operations,
            failure: ack
                .failures
                .first()
                .map(|text| start(text, MAX_FAILURE_CHARS)),
            refused: ack.refused,
            timing: timing.map(|timing| wire::Timing {
                steps: timing.steps.iter().take(MAX_STEPS).map(kept).collect(),
                ..*timing
            }),
        }
    }

    /// Whether the whole batch is in force.
    pub fn is_sound(&self) -> bool {
        self.failed == 0 && !self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_bounded_in_memory_and_unrequested_timings_are_dropped() {
        let step = wire::Step {
            name: "x".repeat(10_000),
            ..wire::Step::default()
        };
        let ack = wire::Ack {
            failures: vec!["y".repeat(1_000_000)],
            timing: Some(wire::Timing {
                total_microseconds: 7,
                steps: vec![step; 10_000],
                ..wire::Timing::default()
            }),
            ..wire::Ack::default()
        };
        assert_eq!(Answered::of(&ack, false).timing, None);
        let kept = Answered::of(&ack, true);
        assert_eq!(kept.failure.map(|text| text.len()), Some(MAX_FAILURE_CHARS));
        let timing = kept.timing.unwrap();
        assert_eq!(
            (timing.total_microseconds, timing.steps.len()),
            (7, MAX_STEPS)
        );
        assert_eq!(timing.steps[0].name.len(), MAX_STEP_NAME_CHARS);
    }
}
