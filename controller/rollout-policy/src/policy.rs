//! The desired configuration and the rollout policy.

use std::sync::Arc;

/// The desired configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The settings in canonical form: equal text means equal settings.
    pub content: Arc<str>,
    /// The generation of the object that requests them; revisions are named after it.
    pub generation: u64,
    /// How they reach nodes; `None` means all nodes at once.
    pub policy: Option<Policy>,
}

/// How a change reaches nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Number of nodes that receive a change first; 0 for none.
    pub canaries: u32,
    /// How long each wave is observed before the next one starts, seconds.
    pub soak: u64,
    /// How the waves after the canaries are formed.
    pub by: By,
    /// Nodes that may have received a change without having answered, at a time.
    pub max_parallel: Share,
    /// Nodes that may fail or be disconnected with the change before it stops reaching further nodes.
    pub max_unavailable: Share,
    /// What happens when a gate fails.
    pub on_failure: OnFailure,
    /// No node receives a change.
    pub paused: bool,
    /// A revision of the history that replaces the settings.
    pub rollback_to: Option<u64>,
    /// Conditions that nodes with a change must meet.
    pub gates: Gates,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            canaries: 1,
            soak: 600,
            by: By::Zone,
            max_parallel: Share::Percent(10),
            max_unavailable: Share::Count(1),
            on_failure: OnFailure::Rollback,
            paused: false,
            rollback_to: None,
            gates: Gates::default(),
        }
    }
}

/// How waves are formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A wave for each zone.
    Zone,
    /// One wave.
    All,
}

/// What happens when a gate fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// The nodes with the change get the former settings back.
    Rollback,
    /// No other node receives the change until the operator has resumed the rollout.
    Pause,
}

/// A number of nodes, absolute or relative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// A number of nodes.
    Count(u32),
    /// A percentage of the nodes.
    Percent(u32),
}

impl Share {
    /// The number of nodes out of `nodes`, rounded up.
    pub fn of(self, nodes: usize) -> usize {
        let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        match self {
            Self::Count(number) => size(number),
            Self::Percent(percent) => nodes.saturating_mul(size(percent)).div_ceil(100),
        }
    }
}

/// Conditions that nodes with a change must meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gates {
    /// Maximum number of failing nodes.
    pub max_failed: u32,
    /// Maximum number of nodes whose kernel entries other programs changed.
    pub max_drifted: u32,
    /// Maximum time from the creation of a plan until it is in force, on 99 of 100 nodes, milliseconds.
    pub programming_p99: u64,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            max_failed: 0,
            max_drifted: 0,
            programming_p99: 5000,
        }
    }
}
