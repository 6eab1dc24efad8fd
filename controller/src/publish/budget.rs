//! The write budget: the rate limit of writes to the API server. `Reconcilers::next` enforces it. Pure; the time
//! since the start is an argument.
//!
//! Invariant: at most `rate × (s + 1)` writes are made in any interval of `s` seconds.

use std::time::Duration;

/// Minimum interval between two writes of one plan, or of one bucket of slices.
const MIN_PLAN_INTERVAL: Duration = Duration::from_secs(30);
/// Minimum interval between two writes of a plan in which only counts of the cluster changed.
pub(super) const MIN_COUNTS_INTERVAL: Duration = Duration::from_secs(300);
/// Interval between two writes of an unchanged status.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(300);
/// Minimum interval between two writes of one status, however often its conditions change.
pub(super) const MIN_STATUS_INTERVAL: Duration = Duration::from_secs(5);
/// Interval between two comparisons of all objects with the stored ones.
pub(super) const COMPARE_INTERVAL: Duration = Duration::from_secs(600);

/// Maximum unused time that is saved while nothing is written. It limits the burst.
const MAX_SAVED_TIME: Duration = Duration::from_secs(1);
/// Maximum backoff after failures of one target.
const MAX_BACKOFF: Duration = Duration::from_secs(300);

/// A rate limiter that allows a burst of 1 s.
#[derive(Debug, Clone)]
pub struct Pace {
    /// The time that one write takes from the budget.
    each: Duration,
    /// The time up to which the budget is used; at most [`MAX_SAVED_TIME`] ahead of the present.
    taken: Duration,
}

impl Pace {
    /// Allows `per_second` writes per second, at least one.
    pub fn new(per_second: u32) -> Self {
        Self {
            each: Duration::from_secs(1) / per_second.max(1),
            taken: Duration::ZERO,
        }
    }

    /// Changes the rate. Writes that were already taken still count.
    pub fn set(&mut self, per_second: u32) {
        self.each = Duration::from_secs(1) / per_second.max(1);
    }

    /// When the next write is allowed, as a duration since the start.
    pub fn ready(&self) -> Duration {
        (self.taken + self.each).saturating_sub(MAX_SAVED_TIME)
    }

    /// Takes one write from the budget; returns false if it is too early.
    pub fn take(&mut self, now: Duration) -> bool {
        if now < self.ready() {
            return false;
        }
        self.taken = self.taken.max(now) + self.each;
        true
    }
}

/// The shortest time between two writes of one plan, such that all plans together stay within the rate.
pub fn plan_interval(nodes: usize, per_second: u32) -> Duration {
    let nodes = u64::try_from(nodes).unwrap_or(u64::MAX);
    MIN_PLAN_INTERVAL.max(Duration::from_secs(nodes / u64::from(per_second.max(1))))
}

/// The backoff after this many consecutive failures: 1 s, doubled for each further failure, at most 300 s.
pub fn back_off(failures: u32) -> Duration {
    let doubled = 1u64.checked_shl(failures.saturating_sub(1).min(20));
    MAX_BACKOFF.min(Duration::from_secs(doubled.unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// At any times of the calls, no interval exceeds its share.
        #[test]
        fn no_span_of_time_has_more_writes_than_the_pace_and_its_reserve(
            rate in 1u32..12,
            gaps in prop::collection::vec(0u64..800, 1..60),
        ) {
            let mut pace = Pace::new(rate);
            let mut now = Duration::ZERO;
            let mut made = Vec::new();
            for gap in gaps {
                now += Duration::from_millis(gap);
                while pace.take(now) {
                    made.push(now);
                }
            }
            for (first, start) in made.iter().enumerate() {
                for (last, end) in made.iter().enumerate().skip(first) {
                    let allowed = f64::from(rate) * ((*end - *start).as_secs_f64() + 1.0);
                    let count = f64::from(u32::try_from(last - first + 1).unwrap());
                    prop_assert!(count <= allowed + 1e-6, "{count} writes, {allowed} allowed");
                }
            }
        }

        #[test]
        fn asking_when_it_is_ready_succeeds_and_earlier_does_not(rate in 1u32..200, idle in 0u64..5000) {
            let mut pace = Pace::new(rate);
            let mut now = Duration::from_millis(idle);
            for _ in 0..500 {
                let ready = pace.ready();
                if let Some(early) = ready.checked_sub(Duration::from_nanos(1)) {
                    prop_assert!(early < now || !pace.clone().take(early));
                }
                now = now.max(ready);
                prop_assert!(pace.take(now));
            }
        }
    }

    #[test]
    fn all_plans_together_stay_within_the_pace() {
        let seconds = |nodes, rate| plan_interval(nodes, rate).as_secs();
        assert_eq!(seconds(3, 50), 30);
        assert_eq!(seconds(1500, 50), 30);
        assert_eq!(seconds(5000, 50), 100);
        assert_eq!(seconds(5000, 0), 5000);
    }

    #[test]
    fn waiting_doubles_up_to_five_minutes() {
        let seconds: Vec<_> = [1, 2, 3, 9, 10, 1000].map(|n| back_off(n).as_secs()).into();
        assert_eq!(seconds, [1, 2, 4, 256, 300, 300]);
    }
}
