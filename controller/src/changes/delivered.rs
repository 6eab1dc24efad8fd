//! What became of a batch on one node.

use std::sync::Arc;
use std::time::SystemTime;

use portolan_proto::wire;

use super::Cause;

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
    /// What an answer says.
    pub fn of(ack: &wire::Ack) -> Self {
        Self {
            operations: ack.operations,
            failed: ack.failed_operations,
            failure: ack.failures.first().cloned(),
            refused: ack.refused,
            timing: ack.timing.clone(),
        }
    }

    /// Whether all of the batch is in force.
    pub fn is_sound(&self) -> bool {
        self.failed == 0 && !self.refused
    }
}
