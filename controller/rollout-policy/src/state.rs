//! The stored state: enough to continue a rollout after a restart or a change of the leader.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::{Moment, Policy, Reach, Scope};

/// Maximum number of stored revisions.
const MAX_REVISIONS: usize = 10;
/// Maximum size of all stored revisions, in bytes; those in force are always kept.
const MAX_HISTORY_BYTES: usize = 256 * 1024;

/// A revision of settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// Its number: the generation that first requested it, or one above all others if that is higher.
    pub number: u64,
    /// The settings in canonical form.
    pub content: Arc<str>,
    /// When it was first requested.
    pub since: Moment,
}

/// The state of a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// All stored revisions, including the current one and the target. They are in the order in which they came into
    /// force: the entry before the current revision is its predecessor.
    pub history: Vec<Revision>,
    /// The revision of nodes that no change has reached.
    pub current: u64,
    /// Whether a change is in progress.
    pub stage: Stage,
    /// The reason for the state, as a message; empty if there is none.
    pub reason: String,
}

/// Whether a change is in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// No change: all nodes have the current revision.
    Complete,
    /// A change is in progress.
    Rolling(Progress),
    /// A change failed and was rolled back on all nodes that had it.
    RolledBack {
        /// The revision that failed.
        revision: u64,
        /// The rollout was paused since: when it is resumed, the revision is retried.
        again: bool,
    },
}

/// A change in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The revision that nodes receive.
    pub target: u64,
    /// The nodes that have received it.
    pub reach: Reach,
    /// The wave.
    pub wave: Wave,
    /// Since when all nodes of the wave have it.
    pub soaking: Option<Moment>,
    /// When a node last received it.
    pub touched_at: Moment,
    /// Nodes that were disconnected or failing before they received the change. They do not count against it until
    /// they have applied it and are healthy.
    pub excused: BTreeSet<Arc<str>>,
    /// A gate failed, and the rollout waits for the operator.
    pub halted: bool,
    /// What the rollout waits for, as a message; empty if it only waits for time to pass.
    pub waiting: String,
}

/// A part of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wave {
    /// The first nodes.
    Canary,
    /// The remaining nodes of a scope.
    Of(Scope),
}

impl fmt::Display for Wave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Canary => f.write_str("canary"),
            Self::Of(Scope::Zone(zone)) if zone.is_empty() => f.write_str("nodes without a zone"),
            Self::Of(Scope::Zone(zone)) => write!(f, "zone {zone}"),
            Self::Of(Scope::All) => f.write_str("all"),
        }
    }
}

/// The phase of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// All nodes have the desired settings.
    Complete,
    /// Nodes are receiving the change.
    Progressing,
    /// A wave has the change and is observed.
    Soaking,
    /// The operator paused it.
    Paused,
    /// A gate failed, and the rollout waits for the operator.
    Halted,
    /// A gate failed, and the change was rolled back.
    RolledBack,
}

impl State {
    /// The initial state of a cluster without a stored one.
    pub fn first(content: Arc<str>, generation: u64, now: Moment) -> Self {
        Self {
            history: vec![Revision {
                number: generation,
                content,
                since: now,
            }],
            current: generation,
            stage: Stage::Complete,
            reason: String::new(),
        }
    }

    /// The revision for a node with this name and zone.
    pub fn serves(&self, name: &str, zone: &str) -> u64 {
        match &self.stage {
            Stage::Rolling(progress) if progress.reach.includes(name, zone) => progress.target,
            _ => self.current,
        }
    }

    /// The revision in progress, or the one that failed; the current one if there is no change.
    pub fn target(&self) -> u64 {
        match &self.stage {
            Stage::Complete => self.current,
            Stage::Rolling(progress) => progress.target,
            Stage::RolledBack { revision, .. } => *revision,
        }
    }

    /// A revision of the history.
    pub fn revision(&self, number: u64) -> Option<&Revision> {
        self.history.iter().find(|held| held.number == number)
    }

    /// The phase under a policy.
    pub fn phase(&self, policy: Option<&Policy>) -> Phase {
        match &self.stage {
            Stage::Complete => Phase::Complete,
            Stage::RolledBack { .. } => Phase::RolledBack,
            Stage::Rolling(_) if policy.is_some_and(|policy| policy.paused) => Phase::Paused,
            Stage::Rolling(progress) if progress.halted => Phase::Halted,
            Stage::Rolling(progress) if progress.soaking.is_some() => Phase::Soaking,
            Stage::Rolling(_) => Phase::Progressing,
        }
    }

    /// Returns the number of these settings, and adds them to the history if they are new.
    pub(crate) fn record(&mut self, content: &Arc<str>, generation: u64, now: Moment) -> u64 {
        let known = self.history.iter().find(|held| held.content == *content);
        if let Some(known) = known {
            return known.number;
        }
        let newest = self.history.iter().map(|held| held.number).max();
        // If the object was deleted and created again, its generation starts at 1.
        let number = newest.map_or(generation, |newest| generation.max(newest + 1));
        self.history.push(Revision {
            number,
            content: content.clone(),
            since: now,
        });
        number
    }

    /// Moves a revision to the end of the history, because it came into force, perhaps again. A failed revision thus
    /// comes before it.
    pub(crate) fn came_into_force(&mut self, number: u64) {
        let place = self.history.iter().position(|held| held.number == number);
        if let Some(place) = place {
            let revision = self.history.remove(place);
            self.history.push(revision);
        }
    }

    /// Removes the oldest revisions that no node has until the limits are met.
    pub(crate) fn forget(&mut self) {
        let held = [self.current, self.target()];
        let spare = |revision: &Revision| !held.contains(&revision.number);
        loop {
            let bytes: usize = self.history.iter().map(|held| held.content.len()).sum();
            let many = self.history.len() > MAX_REVISIONS || bytes > MAX_HISTORY_BYTES;
            match self.history.iter().position(spare) {
                Some(oldest) if many => drop(self.history.remove(oldest)),
                _ => return,
            }
        }
    }
}
