//! The state of a node.

use std::sync::Arc;

/// A node, as far as a rollout depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// Its zone; empty for none.
    pub zone: Arc<str>,
    /// Whether the change affects it.
    pub affected: bool,
    /// What the change does to its agent.
    pub agent: Agent,
    /// Its last report.
    pub report: Report,
}

/// What a change does to the agent of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agent {
    /// The agent is not replaced.
    Stays,
    /// The agent will be replaced, for which it is briefly disconnected, but the replacement is not complete: the
    /// last report may be from the old one.
    Old,
    /// The agent was replaced: the new one is ready, and the report is from it.
    New,
}

/// The report of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Its health.
    pub health: Health,
    /// The revision in force on the node, if known.
    pub applied: Option<u64>,
    /// Other programs changed kernel entries of the node, and they are not repaired.
    pub drifted: bool,
    /// Time from the creation of its last plan until it is in force, milliseconds.
    pub lag: Option<u64>,
}

/// The health of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Its agent is connected and nothing fails.
    Sound,
    /// Something fails, with the cause.
    Failing(Arc<str>),
    /// Its state is unknown: its agent is connected and has not answered yet, or its report is outdated.
    Silent,
    /// Its agent is not connected.
    Disconnected,
}

impl Report {
    /// The report of a node from which none was received.
    pub const DISCONNECTED: Self = Self {
        health: Health::Disconnected,
        applied: None,
        drifted: false,
        lag: None,
    };
}

impl Node {
    /// Whether a later failure can be attributed to the change.
    pub(crate) fn is_fit(&self) -> bool {
        self.report.health == Health::Sound && !self.report.drifted
    }

    /// Whether a revision is in force, applied by the right agent, and nothing fails.
    pub(crate) fn has(&self, revision: u64) -> bool {
        let applied = self.report.applied == Some(revision);
        self.report.health == Health::Sound && applied && self.agent != Agent::Old
    }
}
