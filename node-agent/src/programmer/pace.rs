//! Minimum interval between passes for changes of the plan (`settings.sync.minPeriod`). The time is an argument.
//!
//! Only changes wait, and the changes during the wait are applied together. A pass for another reason (the first plan
//! from a controller, a failure, the sync period, the node's network) uses the plan as it is.

use std::time::{Duration, Instant};

use portolan_plan::NodePlan;

/// The time of the last pass for a change of the plan.
#[derive(Debug, Default)]
pub(super) struct Pace {
    begun: Option<Instant>,
}

impl Pace {
    /// Records the start of a pass for a change.
    pub(super) fn begin(&mut self, now: Instant) {
        self.begun = Some(now);
    }

    /// The remaining wait for this plan, whose own settings contain the interval.
    pub(super) fn left(&self, plan: &NodePlan, now: Instant) -> Duration {
        let Some((begun, node)) = self.begun.zip(plan.node()) else {
            return Duration::ZERO;
        };
        let least = node.settings.sync.min_period.as_duration();
        least.saturating_sub(now.saturating_duration_since(begun))
    }
}

#[cfg(test)]
mod tests {
    use portolan_plan::{Entry, EntryHash, EntryKey, NodeEntry, Period};

    use super::*;

    fn plan(min_period: u32) -> NodePlan {
        let mut node = NodeEntry::default();
        node.settings.sync.min_period = Period::seconds(min_period);
        let entry = Entry::Node(node.into());
        NodePlan::from_entries([(EntryKey::Node, EntryHash::default(), entry)])
    }

    #[test]
    fn only_a_change_after_a_change_waits_by_the_setting_of_the_newest_plan() {
        let seconds = Duration::from_secs;
        let (mut pace, start) = (Pace::default(), Instant::now());
        assert_eq!(pace.left(&plan(10), start), seconds(0), "the first plan");
        pace.begin(start);
        assert_eq!(pace.left(&plan(10), start), seconds(10));
        assert_eq!(pace.left(&plan(10), start + seconds(4)), seconds(6));
        assert_eq!(pace.left(&plan(3), start + seconds(4)), seconds(0));
        assert_eq!(pace.left(&plan(0), start), seconds(0), "no least time");
        assert_eq!(pace.left(&plan(10), start + seconds(11)), seconds(0));
        pace.begin(start + seconds(11));
        assert_eq!(pace.left(&plan(10), start + seconds(11)), seconds(10));
    }
}
