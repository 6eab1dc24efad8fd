//! The policy of the guard, and the stored and approved loss.

use std::sync::Arc;

use portolan_rollout_policy::Moment;

/// The reaction to a loss.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GuardMode {
    /// It is reported, and reaches nodes.
    #[default]
    Report,
    /// It is reported, and does not reach nodes.
    Hold,
}

/// When a loss begins, and the reaction to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardPolicy {
    /// The reaction.
    pub mode: GuardMode,
    /// A loss begins when more than this percentage of the ready endpoints vanishes, 1 to 99.
    pub max_loss_percent: u32,
    /// Clusters with fewer ready endpoints are not guarded.
    pub min_endpoints: u32,
    /// The time window, seconds.
    pub window: u64,
    /// A loss is accepted after this time, seconds.
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
    /// When it was detected.
    pub since: Moment,
}

/// The guard in the ProxyConfig.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guarding {
    /// The policy.
    pub policy: GuardPolicy,
    /// The stored loss, which all controllers know.
    pub stored: Option<StoredLoss>,
    /// The name of the approved loss.
    pub approved: Option<Arc<str>>,
    /// The UID of the object: in a recreated object, a missing loss does not mean that it has ended.
    pub object: Option<Arc<str>>,
}

impl Guarding {
    /// Whether a stored loss is held: a controller that did not see the endpoints before must not plan then.
    pub fn holds_at(&self, now: Moment) -> bool {
        let holds =
            |stored: &StoredLoss| self.policy.mode == GuardMode::Hold && !self.is_over(stored, now);
        self.stored.as_ref().is_some_and(holds)
    }

    /// Whether it was approved, or has reached its maximum duration.
    pub fn is_over(&self, stored: &StoredLoss, now: Moment) -> bool {
        self.approved.as_ref() == Some(&stored.id)
            || now >= stored.since.saturating_add(self.policy.release_after)
    }
}
