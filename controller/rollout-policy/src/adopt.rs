//! Takes over the desired configuration, which may be new or already in progress.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::{Asked, Moment, Policy, Progress, Reach, Stage, State, Wave};

impl State {
    /// Returns the state for the desired configuration. No node receives a new revision by this, except without a
    /// policy: then all nodes receive the desired one. A change that is replaced by another one is rolled back on the
    /// nodes that had it: with two changes at a time, a failure could not be attributed.
    #[must_use]
    pub fn adopt(&self, asked: &Asked, now: Moment) -> Self {
        let mut state = self.clone();
        let Some(policy) = &asked.policy else {
            let number = state.record(&asked.content, asked.generation, now);
            if number != state.current || state.stage != Stage::Complete {
                state.settle(number, String::new());
            }
            return state;
        };
        match state.wanted(asked, policy) {
            Ok(content) => state.want(&content, asked.generation, policy, now),
            Err(reason) => state.reason = reason,
        }
        state.forget();
        state
    }

    fn wanted(&self, asked: &Asked, policy: &Policy) -> Result<Arc<str>, String> {
        let Some(number) = policy.rollback_to else {
            return Ok(asked.content.clone());
        };
        let found = self.revision(number).map(|found| found.content.clone());
        found.ok_or_else(|| {
            format!(
                "spec.rollout.rollbackTo: there is no revision default-{number}; status.rollout.history \
                 lists the stored ones. No new change starts"
            )
        })
    }

    fn want(&mut self, content: &Arc<str>, generation: u64, policy: &Policy, now: Moment) {
        let is = |state: &Self, number| {
            let revision = state.revision(number);
            revision.is_some_and(|revision| revision.content == *content)
        };
        if is(self, self.current) {
            let reason = match &self.stage {
                Stage::Complete => return,
                Stage::Rolling(progress) => format!("default-{} was rolled back", progress.target),
                Stage::RolledBack { .. } => String::new(),
            };
            return self.settle(self.current, reason);
        }
        match &mut self.stage {
            Stage::Rolling(progress) => {
                let target = progress.target;
                if is(self, target) {
                    return;
                }
                if policy.paused {
                    self.reason = "the new change waits until the rollout is resumed".into();
                    return;
                }
                // Revisions that were never in force come before the current one.
                self.came_into_force(self.current);
                self.begin(content, generation, now);
                self.reason = format!("default-{target} was replaced and rolled back");
            }
            Stage::RolledBack { revision, again } => {
                *again |= policy.paused;
                let (revision, again) = (*revision, *again);
                if !is(self, revision) || (again && !policy.paused) {
                    self.begin(content, generation, now);
                }
            }
            Stage::Complete => self.begin(content, generation, now),
        }
    }

    fn begin(&mut self, content: &Arc<str>, generation: u64, now: Moment) {
        let target = self.record(content, generation, now);
        self.reason = String::new();
        self.stage = Stage::Rolling(Progress {
            target,
            reach: Reach::default(),
            wave: Wave::Canary,
            soaking: None,
            touched_at: now,
            excused: BTreeSet::new(),
            halted: false,
            waiting: String::new(),
        });
    }

    pub(crate) fn settle(&mut self, number: u64, reason: String) {
        self.current = number;
        self.came_into_force(number);
        self.stage = Stage::Complete;
        self.reason = reason;
        self.forget();
    }
}
