//! What the operator asks for.

use std::sync::Arc;

/// What is asked for at this time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The settings, in one spelling: equal text means equal settings.
    pub content: Arc<str>,
    /// The generation of the object that asks for them; revisions are named after it.
    pub generation: u64,
    /// How they reach nodes; `None` means all at once.
    pub policy: Option<Policy>,
}

/// How a change reaches nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Nodes that are given a change first; 0 for none.
    pub canaries: u32,
    /// Seconds that each wave is watched for before the next one begins.
    pub soak: u64,
    /// How waves after the canaries are made.
    pub by: By,
    /// Nodes that may have been given a change and not have answered, at once.
    pub max_parallel: Share,
    /// Nodes that may fail or be away after they were given a change before no more are given it.
    pub max_unavailable: Share,
    /// What is done when a gate is not passed.
    pub on_failure: OnFailure,
    /// Nobody is given anything.
    pub paused: bool,
    /// A revision of the history that is wanted in place of the settings.
    pub rollback_to: Option<u64>,
    /// What nodes that were given a change are held to.
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

/// How waves are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A wave for each zone.
    Zone,
    /// One wave.
    All,
}

/// What is done when a gate is not passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// The nodes that were given the change are given the former settings again.
    Rollback,
    /// Nobody else is given it, and somebody has to look.
    Pause,
}

/// A number of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// So many.
    Count(u32),
    /// So many of a hundred.
    Percent(u32),
}

impl Share {
    /// How many that is of so many nodes, rounded up.
    pub fn of(self, nodes: usize) -> usize {
        let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        match self {
            Self::Count(number) => size(number),
            Self::Percent(percent) => nodes.saturating_mul(size(percent)).div_ceil(100),
        }
    }
}

/// What nodes that were given a change are held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gates {
    /// So many may fail.
    pub max_failed: u32,
    /// Of so many the kernel may differ from the plan because of somebody else.
    pub max_drifted: u32,
    /// Milliseconds from the making of a plan to its being in force, of 99 nodes in 100.
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
