//! Tracks per address family whether changes are applied in time (S-147). The time is an argument.
//!
//! A family waits from the arrival of a change, or from a failed pass, until the first pass that includes the
//! change and has no failure in the family. A family that waits too long is late.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use portolan_plan::Family;

/// A point in time, as monotonic and wall clock time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Time since the start of the program.
    pub running: Duration,
    /// Wall clock time, only for output.
    pub wall: Timestamp,
}

/// Maximum number of pending changes that are tracked. Further ones are merged into the last, which reports lateness
/// early rather than late. The stream has one change in flight, so there are more only after a reconnect.
const MAX_PENDING: usize = 4;

/// A pending change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pending {
    generation: u64,
    since: Duration,
}

/// State of one family.
#[derive(Debug, Clone, Default)]
struct FamilyProgress {
    /// The generation of the applied plan, and the time of the pass.
    done: Option<(u64, Timestamp)>,
    waiting: Vec<Pending>,
}

impl FamilyProgress {
    fn wait(&mut self, generation: u64, since: Duration) {
        let crowded = self.waiting.len() >= MAX_PENDING;
        match self.waiting.last_mut() {
            Some(last) if crowded => last.generation = generation,
            _ => self.waiting.push(Pending { generation, since }),
        }
    }
}

/// Health of a family at a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FamilyState {
    /// The time of the last successful pass.
    pub updated: Timestamp,
    /// Whether no change has been pending for too long.
    pub healthy: bool,
}

/// Progress of the node in applying changes.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    families: BTreeMap<Family, FamilyProgress>,
    limit: Duration,
}

impl Progress {
    /// Records the arrival of a change.
    pub fn queued(&mut self, generation: u64, now: Duration) {
        for family in Family::BOTH {
            let state = self.families.entry(family).or_default();
            // The pass with this change may have ended before this call.
            if state.done.is_none_or(|(done, _)| done < generation) {
                state.wait(generation, now);
            }
        }
    }

    /// Records the end of a pass with this plan generation and failures in these families. `limit` is the time
    /// after which a family is late.
    pub fn finished(
        &mut self,
        generation: u64,
        failed: &BTreeSet<Family>,
        limit: Duration,
        now: Moment,
    ) {
        self.limit = limit;
        for family in Family::BOTH {
            let state = self.families.entry(family).or_default();
            if !failed.contains(&family) {
                state.done = Some((generation, now.wall));
                state.waiting.retain(|waits| waits.generation > generation);
            } else if state.waiting.is_empty() {
                state.wait(generation, now.running);
            }
        }
    }

    /// The families with at least one successful pass (S-148).
    pub fn families(&self, now: Duration) -> BTreeMap<Family, FamilyState> {
        let state = |(family, state): (&Family, &FamilyProgress)| {
            let (_, updated) = state.done?;
            let oldest = state.waiting.first();
            let late = |waits: &Pending| now.saturating_sub(waits.since) >= self.limit;
            let healthy = !oldest.is_some_and(late);
            Some((*family, FamilyState { updated, healthy }))
        };
        self.families.iter().filter_map(state).collect()
    }

    /// Whether each family has had a successful pass, and none is late.
    pub fn is_healthy(&self, now: Duration) -> bool {
        let families = self.families(now);
        families.len() == Family::BOTH.len() && families.values().all(|state| state.healthy)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use proptest::prelude::*;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn at(running: Duration) -> Moment {
        let wall = Timestamp::UNIX_EPOCH + running;
        Moment { running, wall }
    }

    fn finished(progress: &mut Progress, generation: u64, failed: &[Family], second: u64) {
        let failed = failed.iter().copied().collect();
        progress.finished(generation, &failed, LIMIT, at(seconds(second)));
    }

    fn in_force() -> Progress {
        let mut progress = Progress::default();
        progress.queued(1, seconds(0));
        finished(&mut progress, 1, &[], 1);
        progress
    }

    #[test]
    fn before_a_first_finished_pass_no_family_is_listed_and_nothing_is_healthy() {
        let mut progress = Progress::default();
        progress.queued(1, seconds(0));
        finished(&mut progress, 1, &[Family::Ipv6], 1);
        let families = progress.families(seconds(1000));
        assert_eq!(families.keys().collect::<Vec<_>>(), [&Family::Ipv4]);
        assert!(!progress.is_healthy(seconds(2)));
    }

    #[test]
    fn exactly_the_limit_is_late_and_a_second_change_does_not_restart_the_clock() {
        let mut progress = in_force();
        progress.queued(2, seconds(100));
        progress.queued(3, seconds(150));
        assert!(progress.is_healthy(seconds(160) - Duration::from_nanos(1)));
        assert!(!progress.is_healthy(seconds(160)));
        finished(&mut progress, 2, &[], 161);
        assert!(progress.is_healthy(seconds(209)));
        assert!(!progress.is_healthy(seconds(210)), "the second waits on");
    }

    #[test]
    fn age_alone_is_not_late() {
        assert!(in_force().is_healthy(seconds(1_000_000)));
    }

    #[test]
    fn one_family_does_not_heal_the_other() {
        let mut progress = in_force();
        progress.queued(2, seconds(100));
        finished(&mut progress, 2, &[Family::Ipv6], 101);
        let families = progress.families(seconds(160));
        assert!(families[&Family::Ipv4].healthy && !families[&Family::Ipv6].healthy);
        assert_eq!(
            families[&Family::Ipv6].updated,
            Timestamp::UNIX_EPOCH + seconds(1)
        );
        assert!(!progress.is_healthy(seconds(160)));
    }

    #[test]
    fn a_failure_that_lasts_is_late_without_any_change() {
        let mut progress = in_force();
        for second in [100, 130, 159] {
            finished(&mut progress, 1, &[Family::Ipv4], second);
            assert!(progress.is_healthy(seconds(159)), "S-169");
        }
        assert!(!progress.is_healthy(seconds(160)));
        finished(&mut progress, 1, &[], 161);
        assert!(progress.is_healthy(seconds(1000)));
    }

    #[test]
    fn a_change_that_is_recorded_after_its_pass_is_not_pending() {
        let mut progress = in_force();
        finished(&mut progress, 2, &[], 10);
        progress.queued(2, seconds(11));
        assert!(progress.is_healthy(seconds(1000)));
    }

    #[derive(Debug, Clone)]
    enum Event {
        Queued,
        Finished { behind: u64, failed: bool },
    }

    fn events(count: Range<usize>) -> impl Strategy<Value = Vec<(u64, Event)>> {
        let event = prop_oneof![
            Just(Event::Queued),
            (0..3u64, any::<bool>())
                .prop_map(|(behind, failed)| Event::Finished { behind, failed }),
        ];
        proptest::collection::vec((0..40u64, event), count)
    }

    proptest! {
        /// Compared with a complete list: late if and only if a change has been pending for the limit, while few
        /// changes are pending at once, and otherwise never later than that.
        #[test]
        fn late_is_what_has_waited_for_the_limit(events in events(0..40)) {
            let mut progress = in_force();
            let (mut now, mut newest) = (seconds(1), 1);
            let mut waiting: Vec<(u64, Duration)> = Vec::new();
            let mut crowded = false;
            let mut done = 1;
            for (wait, event) in events {
                now += seconds(wait);
                match event {
                    Event::Queued => {
                        newest += 1;
                        progress.queued(newest, now);
                        waiting.push((newest, now));
                    }
                    Event::Finished { behind, failed } => {
                        done = done.max(newest.saturating_sub(behind));
                        let families = if failed { Family::BOTH.into() } else { BTreeSet::new() };
                        progress.finished(done, &families, LIMIT, at(now));
                        if !failed {
                            waiting.retain(|(generation, _)| *generation > done);
                        } else if waiting.is_empty() {
                            waiting.push((done, now));
                        }
                    }
                }
                crowded = !waiting.is_empty() && (crowded || waiting.len() > MAX_PENDING);
                let late = waiting.iter().any(|(_, since)| now - *since >= LIMIT);
                if crowded {
                    prop_assert!(!late || !progress.is_healthy(now));
                } else {
                    prop_assert_eq!(late, !progress.is_healthy(now));
                }
            }
        }
    }
}
