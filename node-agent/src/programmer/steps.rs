//! What a pass spends its time on, for whoever asks where it went.

use std::time::{Duration, Instant};

/// One thing that a pass did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// In our words.
    pub name: &'static str,
    /// From the pass's beginning to its own.
    pub after: Duration,
    /// How long it took.
    pub took: Duration,
    /// Operations that were made.
    pub operations: usize,
    /// Operations that failed or were held back.
    pub failed: usize,
}

/// What a pass did so far, in order.
#[derive(Debug)]
pub(super) struct Steps {
    began: Instant,
    done: Vec<Step>,
}

impl Default for Steps {
    /// Begins now.
    fn default() -> Self {
        Self {
            began: Instant::now(),
            done: Vec::new(),
        }
    }
}

impl Steps {
    /// Something is done that began then, with so many operations made and failed.
    pub(super) fn note(&mut self, name: &'static str, began: Instant, made: usize, failed: usize) {
        self.done.push(Step {
            name,
            after: began.saturating_duration_since(self.began),
            took: began.elapsed(),
            operations: made,
            failed,
        });
    }

    /// When it began.
    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// All of them.
    pub(super) fn done(&self) -> &[Step] {
        &self.done
    }
}
