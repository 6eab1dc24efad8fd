//! Durations of the steps of a pass, for traces.

use std::time::{Duration, Instant};

/// A step of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Its name.
    pub name: &'static str,
    /// Time from the start of the pass to the start of the step.
    pub after: Duration,
    /// Its duration.
    pub took: Duration,
    /// Number of successful operations.
    pub operations: usize,
    /// Number of operations that failed or were skipped.
    pub failed: usize,
}

/// The finished steps of a pass, in order.
#[derive(Debug)]
pub(super) struct Steps {
    began: Instant,
    done: Vec<Step>,
}

impl Default for Steps {
    /// A pass that starts now.
    fn default() -> Self {
        Self {
            began: Instant::now(),
            done: Vec::new(),
        }
    }
}

impl Steps {
    /// Records a finished step with the numbers of its successful and failed operations.
    pub(super) fn note(&mut self, name: &'static str, began: Instant, made: usize, failed: usize) {
        self.done.push(Step {
            name,
            after: began.saturating_duration_since(self.began),
            took: began.elapsed(),
            operations: made,
            failed,
        });
    }

    /// The start of the pass.
    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// The finished steps.
    pub(super) fn done(&self) -> &[Step] {
        &self.done
    }
}
