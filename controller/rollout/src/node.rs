//! What is known of a node.

use std::sync::Arc;

/// A node as far as a rollout is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// Its zone; empty for none.
    pub zone: Arc<str>,
    /// Whether the change makes a difference to it.
    pub affected: bool,
    /// What the change does to its agent.
    pub agent: Agent,
    /// What it reported.
    pub report: Report,
}

/// What a change does to the agent of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agent {
    /// Nothing.
    Stays,
    /// It is replaced, for which it is away for a moment, and that has not happened; or what is reported was
    /// reported by the old one.
    Old,
    /// It was replaced, the new one is ready, and what is reported was reported by it.
    New,
}

/// What a node reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How it is.
    pub health: Health,
    /// The revision that is in force there, as far as anybody knows.
    pub applied: Option<u64>,
    /// Somebody else changed its kernel, and it stays so.
    pub drifted: bool,
    /// Milliseconds from the making of its last plan to its being in force.
    pub lag: Option<u64>,
}

/// How a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Its agent is connected and nothing fails.
    Sound,
    /// Something fails, in words.
    Failing(Arc<str>),
    /// Its agent is connected and has not answered yet.
    Silent,
    /// Its agent is not connected.
    Away,
}

impl Report {
    /// Nothing is known: for a node that nobody has heard of.
    pub const AWAY: Self = Self {
        health: Health::Away,
        applied: None,
        drifted: false,
        lag: None,
    };
}

impl Node {
    /// Whether what goes wrong after a change can be blamed on it.
    pub(crate) fn is_fit(&self) -> bool {
        self.report.health == Health::Sound && !self.report.drifted
    }

    /// Whether a revision is in force there, by the agent that goes with it, and nothing fails.
    pub(crate) fn has(&self, revision: u64) -> bool {
        let applied = self.report.applied == Some(revision);
        self.report.health == Health::Sound && applied && self.agent != Agent::Old
    }
}
