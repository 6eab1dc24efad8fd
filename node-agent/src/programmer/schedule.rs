//! Schedules the complete reads of the kernel. The time is an argument.
//!
//! Passes for changes of the plan or the network can make a read earlier, but never later. So the kernel is read in
//! time regardless of the number and the results of such passes.

use std::time::{Duration, Instant};

/// Initial delay after a failure; it doubles up to [`MAX_BACKOFF`].
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// The result of a pass, as far as it matters for scheduling.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pass {
    pub(super) failed: bool,
    /// Whether another pass has to continue at once.
    pub(super) unfinished: bool,
    /// Time until the next complete read.
    pub(super) period: Duration,
    /// Its duration.
    pub(super) took: Duration,
}

impl Pass {
    /// A pass without anything to do.
    pub(super) fn nothing(period: Duration, took: Duration) -> Self {
        Self {
            failed: false,
            unfinished: false,
            period,
            took,
        }
    }
}

/// The time of the next complete read.
#[derive(Debug)]
pub(super) struct Schedule {
    /// `None` means never.
    due: Option<Instant>,
    backoff: Duration,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            due: None,
            backoff: INITIAL_BACKOFF,
        }
    }
}

impl Schedule {
    /// Time until the next read.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.due
            .map_or(Duration::MAX, |due| due.saturating_duration_since(now))
    }

    /// Whether a read is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.left(now).is_zero()
    }

    /// Records a pass that ended now, and whether it read the complete kernel state.
    pub(super) fn note(&mut self, now: Instant, read_all: bool, pass: Pass) {
        let wait = if pass.failed {
            // A pass that already waited, for the iptables lock, shortens the delay after it.
            self.backoff.saturating_sub(pass.took).max(INITIAL_BACKOFF)
        } else {
            pass.period
        };
        // A period may be longer than an `Instant` can represent.
        let next = now.checked_add(wait);
        if !read_all {
            self.due = [self.due, next].into_iter().flatten().min();
            return;
        }
        self.due = next;
        self.backoff = if pass.failed {
            (self.backoff * 2).min(MAX_BACKOFF)
        } else {
            INITIAL_BACKOFF
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
    fn failing_passes_without_a_read_do_not_postpone_the_read() {
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
        // A pass that ends when a read is already due does not postpone it either.
        schedule.note(start + seconds(5), false, pass(true));
        assert!(schedule.is_due(start + seconds(5)));
    }

    #[test]
    fn the_back_off_doubles_only_with_reads_up_to_its_limit_and_is_reset_by_a_success() {
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
    fn a_success_without_a_read_does_not_replace_the_read_after_a_failure() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        schedule.note(start, true, pass(true));
        schedule.note(start, false, pass(false));
        assert_eq!(schedule.left(start), seconds(1));
    }

    #[test]
    fn a_shorter_period_counts_from_the_pass_that_applied_it() {
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
