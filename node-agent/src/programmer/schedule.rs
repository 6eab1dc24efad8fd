//! When the kernel is looked at as a whole the next time. Time comes as an argument.
//!
//! Passes that come from the plan or from the network may make a look earlier, never later: however
//! many there are and however they end, the kernel is looked at.

use std::time::{Duration, Instant};

/// The first wait after a failure; it doubles up to [`LONGEST_BACK_OFF`].
const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(30);

/// How a pass ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pass {
    pub(super) failed: bool,
    /// Whether a next pass has to go on at once.
    pub(super) unfinished: bool,
    /// When to look again.
    pub(super) period: Duration,
    /// How long it took.
    pub(super) took: Duration,
}

impl Pass {
    /// There was nothing to do yet.
    pub(super) fn nothing(period: Duration, took: Duration) -> Self {
        Self {
            failed: false,
            unfinished: false,
            period,
            took,
        }
    }
}

/// When the next look is due.
#[derive(Debug)]
pub(super) struct Schedule {
    /// `None` is never.
    due: Option<Instant>,
    back_off: Duration,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            due: None,
            back_off: FIRST_BACK_OFF,
        }
    }
}

impl Schedule {
    /// How long until a look is due.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.due
            .map_or(Duration::MAX, |due| due.saturating_duration_since(now))
    }

    /// Whether a look is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.left(now).is_zero()
    }

    /// Notes a pass that ended now, and whether it looked at the kernel as a whole.
    pub(super) fn note(&mut self, now: Instant, looked: bool, pass: Pass) {
        let wait = if pass.failed {
            // A pass that waited itself, for the lock of iptables, need not be followed by more of it.
            self.back_off.saturating_sub(pass.took).max(FIRST_BACK_OFF)
        } else {
            pass.period
        };
        // A period may be longer than any clock counts.
        let next = now.checked_add(wait);
        if !looked {
            self.due = [self.due, next].into_iter().flatten().min();
            return;
        }
        self.due = next;
        self.back_off = if pass.failed {
            (self.back_off * 2).min(LONGEST_BACK_OFF)
        } else {
            FIRST_BACK_OFF
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(3600);

    fn pass(failed: bool) -> Pass {
        Pass {
            failed,
            unfinished: false,
            period: PERIOD,
            took: Duration::ZERO,
        }
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn failing_passes_that_did_not_look_put_no_look_off() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        assert_eq!(schedule.left(start), Duration::MAX);
        schedule.note(start, true, pass(true));
        for tenth in 1..10 {
            let now = start + Duration::from_millis(tenth * 100);
            schedule.note(now, false, pass(true));
            assert!(!schedule.is_due(now));
        }
        assert!(schedule.is_due(start + seconds(1)), "S-184");
        // One that ends when a look is due already does not put it off either.
        schedule.note(start + seconds(5), false, pass(true));
        assert!(schedule.is_due(start + seconds(5)));
    }

    #[test]
    fn the_back_off_doubles_with_looks_only_up_to_its_bound_and_begins_anew_after_a_success() {
        let mut now = Instant::now();
        let mut schedule = Schedule::default();
        for wait in [1, 2, 4, 8, 16, 30, 30] {
            schedule.note(now, true, pass(true));
            assert_eq!(schedule.left(now), seconds(wait));
            schedule.note(now, false, pass(true));
            assert_eq!(schedule.left(now), seconds(wait));
            now += seconds(wait);
        }
        schedule.note(now, true, pass(false));
        assert_eq!(schedule.left(now), PERIOD);
        schedule.note(now, true, pass(true));
        assert_eq!(schedule.left(now), seconds(1));
    }

    #[test]
    fn a_success_without_a_look_does_not_replace_the_look_after_a_failure() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        schedule.note(start, true, pass(true));
        schedule.note(start, false, pass(false));
        assert_eq!(schedule.left(start), seconds(1));
    }

    #[test]
    fn a_shorter_period_counts_from_the_pass_that_brought_it() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        schedule.note(start, true, pass(false));
        let shorter = Pass {
            period: seconds(10),
            ..pass(false)
        };
        schedule.note(start, false, shorter);
        assert_eq!(schedule.left(start), seconds(10));
        let endless = Pass {
            period: Duration::MAX,
            ..pass(false)
        };
        schedule.note(start, true, endless);
        assert_eq!(schedule.left(start), Duration::MAX);
    }
}
