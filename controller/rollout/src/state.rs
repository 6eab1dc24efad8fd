//! What is stored: enough to decide everything else anew.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::{Moment, Policy, Reach, Scope};

/// Revisions that are remembered.
const MOST_REVISIONS: usize = 10;
/// Bytes of all that are remembered, apart from those in force.
const MOST_BYTES: usize = 256 * 1024;

/// Settings that were asked for once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// Its number: the generation that first asked for it, or one above all others if that is higher.
    pub number: u64,
    /// The settings, in one spelling.
    pub content: Arc<str>,
    /// When it was first asked for.
    pub since: Moment,
}

/// How far settings are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// What was asked for so far; the one in force and the one on its way are in it. In the order in which
    /// they came into force: before the current one is the one that was in force before it.
    pub history: Vec<Revision>,
    /// What nodes have that no change has reached.
    pub current: u64,
    /// Whether a change is on its way.
    pub stage: Stage,
    /// Why it is as it is, in words; empty when there is nothing to say.
    pub reason: String,
}

/// Whether a change is on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// None is: all nodes have the current revision.
    Complete,
    /// One is.
    Rolling(Progress),
    /// One was, did not pass, and was taken back from all nodes that it had reached.
    RolledBack {
        /// The revision that did not pass.
        revision: u64,
        /// Somebody paused the rollout since: once it is resumed, the revision is tried again.
        again: bool,
    },
}

/// A change on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The revision that nodes are given.
    pub target: u64,
    /// Those that it has reached.
    pub reach: Reach,
    /// The wave.
    pub wave: Wave,
    /// Since when all of the wave have it.
    pub soaking: Option<Moment>,
    /// When somebody was reached last.
    pub touched_at: Moment,
    /// Nodes that were away or failing before it reached them: they are not held against it until they
    /// have it and are sound.
    pub excused: BTreeSet<Arc<str>>,
    /// A gate was not passed and somebody has to look.
    pub halted: bool,
    /// What it waits for, in words; empty when it only takes its time.
    pub waiting: String,
}

/// A part of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wave {
    /// The first few nodes.
    Canary,
    /// The rest of a scope.
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

/// What is going on, as one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// All nodes have what is asked for.
    Complete,
    /// Nodes are being reached.
    Progressing,
    /// A wave has it and is watched.
    Soaking,
    /// The operator paused it.
    Paused,
    /// A gate was not passed, and somebody has to look.
    Halted,
    /// A gate was not passed, and it was taken back.
    RolledBack,
}

impl State {
    /// The state of a cluster in which nothing was recorded before.
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

    /// The revision that a node of this name and zone is given.
    pub fn serves(&self, name: &str, zone: &str) -> u64 {
        match &self.stage {
            Stage::Rolling(progress) if progress.reach.includes(name, zone) => progress.target,
            _ => self.current,
        }
    }

    /// The revision that is on its way, or that did not pass; the current one when there is none.
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

    /// What is going on under a policy.
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

    /// The number of these settings, which are remembered from now on.
    pub(crate) fn record(&mut self, content: &Arc<str>, generation: u64, now: Moment) -> u64 {
        let known = self.history.iter().find(|held| held.content == *content);
        if let Some(known) = known {
            return known.number;
        }
        let newest = self.history.iter().map(|held| held.number).max();
        // An object that was deleted and made again counts from one.
        let number = newest.map_or(generation, |newest| generation.max(newest + 1));
        self.history.push(Revision {
            number,
            content: content.clone(),
            since: now,
        });
        number
    }

    /// A revision is in force, again perhaps: what did not pass comes before it.
    pub(crate) fn came_into_force(&mut self, number: u64) {
        let place = self.history.iter().position(|held| held.number == number);
        if let Some(place) = place {
            let revision = self.history.remove(place);
            self.history.push(revision);
        }
    }

    /// Forgets the oldest revisions that nobody has.
    pub(crate) fn forget(&mut self) {
        let held = [self.current, self.target()];
        let spare = |revision: &Revision| !held.contains(&revision.number);
        loop {
            let bytes: usize = self.history.iter().map(|held| held.content.len()).sum();
            let many = self.history.len() > MOST_REVISIONS || bytes > MOST_BYTES;
            match self.history.iter().position(spare) {
                Some(oldest) if many => drop(self.history.remove(oldest)),
                _ => return,
            }
        }
    }
}
