//! What became of a batch on one node.

use std::sync::Arc;
use std::time::SystemTime;

use portolan_proto::wire;

use crate::cause::Cause;

/// A batch that a node answered.
#[derive(Debug, Clone)]
pub struct Delivered {
    /// The node.
    pub node: Arc<str>,
    /// The agent's version.
    pub agent_version: Arc<str>,
    /// The changes that are in it, the oldest first; never empty.
    pub causes: Vec<Arc<Cause>>,
    /// The span that waited for the answer, in the oldest one's trace.
    pub span: [u8; 8],
    /// Its number on the stream.
    pub batch: u64,
    /// When it began to be made.
    pub made: SystemTime,
    /// When the last of it was handed on to the network.
    pub handed: SystemTime,
    /// When the answer came.
    pub at: SystemTime,
    /// What the answer says.
    pub answered: Answered,
}

/// So many steps of a pass are kept; agents have a third of that.
const MOST_STEPS: usize = 64;
/// So many characters of a step's name, and of a failure.
const NAME: usize = 64;
const FAILURE: usize = 1024;

fn kept(step: &wire::Step) -> wire::Step {
    wire::Step {
        name: start(&step.name, NAME),
        ..*step
    }
}

fn start(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// What an agent says to a batch.
#[derive(Debug, Clone, Default)]
pub struct Answered {
    /// Kernel operations made.
    pub operations: u64,
    /// Kernel operations that failed.
    pub failed: u64,
    /// The first failure, in words.
    pub failure: Option<String>,
    /// Whether the agent refused the batch, and gets the whole plan.
    pub refused: bool,
    /// What took the time, if it was asked and tells.
    pub timing: Option<wire::Timing>,
}

impl Answered {
    /// What an answer says, as far as there is room for it: whoever answers may say anything. `asked` is
    /// whether it was asked what takes the time.
    pub fn of(ack: &wire::Ack, asked: bool) -> Self {
        let timing = ack.timing.as_ref().filter(|_| asked);
        Self {
            operations: ack.operations,
            failed: ack.failed_operations,
            failure: ack.failures.first().map(|text| start(text, FAILURE)),
            refused: ack.refused,
            timing: timing.map(|timing| wire::Timing {
                steps: timing.steps.iter().take(MOST_STEPS).map(kept).collect(),
                ..*timing
            }),
        }
    }

    /// Whether all of the batch is in force.
    pub fn is_sound(&self) -> bool {
        self.failed == 0 && !self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_takes_much_memory_and_what_nobody_asked_for_takes_none() {
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
        assert_eq!(kept.failure.map(|text| text.len()), Some(FAILURE));
        let timing = kept.timing.unwrap();
        assert_eq!(
            (timing.total_microseconds, timing.steps.len()),
            (7, MOST_STEPS)
        );
        assert_eq!(timing.steps[0].name.len(), NAME);
    }
}
