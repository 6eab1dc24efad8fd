//! What is asked for, stored and approved about losses.

use std::sync::Arc;

use portolan_rollout::Moment;

/// What is done about a loss.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GuardMode {
    /// It is told, and passes.
    #[default]
    Report,
    /// It is told, and does not reach nodes.
    Hold,
}

/// What a loss is, and what is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardPolicy {
    /// What is done.
    pub mode: GuardMode,
    /// More of the ready endpoints than this is a loss, 1 to 99 in a hundred.
    pub max_loss_percent: u32,
    /// Clusters with fewer ready endpoints are not judged.
    pub min_endpoints: u32,
    /// They vanished within so many seconds.
    pub window: u64,
    /// A loss is believed after so many seconds.
    pub release_after: u64,
}

impl Default for GuardPolicy {
    fn default() -> Self {
        Self {
            mode: GuardMode::Report,
            max_loss_percent: 50,
            min_endpoints: 200,
            window: 60,
            release_after: 1800,
        }
    }
}

/// A loss that some controller has stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLoss {
    /// Its name.
    pub id: Arc<str>,
    /// When it was noticed.
    pub since: Moment,
}

/// What the ProxyConfig says about losses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guarding {
    /// What was asked for.
    pub policy: GuardPolicy,
    /// The loss that is known to all controllers.
    pub stored: Option<StoredLoss>,
    /// The loss that somebody approved.
    pub approved: Option<Arc<str>>,
    /// Which object says so: one that was made anew does not say that what was stored before is over.
    pub object: Option<Arc<str>>,
}

impl Guarding {
    /// Whether a stored loss is held: who did not see what was before must not plan then.
    pub fn holds_at(&self, now: Moment) -> bool {
        let holds =
            |stored: &StoredLoss| self.policy.mode == GuardMode::Hold && !self.is_over(stored, now);
        self.stored.as_ref().is_some_and(holds)
    }

    /// Whether it was approved, or is as old as one may become.
    pub fn is_over(&self, stored: &StoredLoss, now: Moment) -> bool {
        self.approved.as_ref() == Some(&stored.id)
            || now >= stored.since.saturating_add(self.policy.release_after)
    }
}
