//! The state of simulated connections.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Whether a connection carries data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Passage {
    /// It carries data.
    #[default]
    Up,
    /// Data waits, and neither side notices.
    Held,
    /// Open connections break, and none can be opened.
    Cut,
}

/// The connection of an agent to a controller.
#[derive(Debug, Clone)]
pub(crate) struct LinkState {
    /// Whether it carries data.
    pub(crate) passage: Passage,
    /// Incremented when open connections break.
    pub(crate) generation: u64,
    /// The delay of a message.
    pub(crate) latency: Duration,
    /// The number of batches whose announced hash will be changed on the way.
    pub(crate) wrong_hashes: Arc<AtomicU32>,
}
