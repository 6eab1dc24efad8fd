//! Backoff after failures: of all calls, of one kind, or of one target. Each failure is logged once. Pure; the time
//! since the start is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::budget::back_off;
use super::write::{FailureClass, Kind, Target};

/// Maximum backoff of all calls while the API server is unreachable. Checking whether it is back costs little.
const MAX_UNREACHABLE_BACKOFF: Duration = Duration::from_secs(30);

/// Maximum backoff of one kind that does not exist or is forbidden. Its CRD may just have been installed.
const MAX_MISSING_KIND_BACKOFF: Duration = Duration::from_secs(60);

/// All current pauses.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    all: Pause,
    kinds: BTreeMap<Kind, Pause>,
    things: BTreeMap<Target, u32>,
    /// Failures that were logged and still last, with the target if they are about one target only.
    logged: BTreeSet<(Kind, FailureClass, Option<Target>)>,
}

/// Maximum number of targets of one kind that are logged with the same failure. Further ones only wait.
const MAX_LOGGED_TARGETS: usize = 5;

#[derive(Debug, Clone, Copy, Default)]
struct Pause {
    until: Duration,
    failures: u32,
}

impl Pause {
    /// Adds a failure. Failures of concurrent calls count as one.
    fn fail(&mut self, now: Duration, longest: Duration) -> Duration {
        if now >= self.until {
            self.failures += 1;
            self.until = now + back_off(self.failures).min(longest);
        }
        self.until
    }
}

impl Pauses {
    /// The end of the pause of a kind, as a duration since the start.
    pub(super) fn until(&self, kind: Kind) -> Duration {
        let own = self.kinds.get(&kind).map_or(Duration::ZERO, |p| p.until);
        self.all.until.max(own)
    }

    /// Records a success. Returns true if it ends a failure that was logged.
    pub(super) fn succeeded(&mut self, kind: Kind, target: &Target) -> bool {
        self.all = Pause::default();
        self.kinds.remove(&kind);
        self.things.remove(target);
        let before = self.logged.len();
        self.logged.retain(|(of_kind, class, thing)| match thing {
            Some(thing) => thing != target,
            None => *class != FailureClass::Unreachable && *of_kind != kind,
        });
        self.logged.len() < before
    }

    /// Records a failure. Returns when to retry the target, and whether the failure is to be logged.
    pub(super) fn failed(
        &mut self,
        kind: Kind,
        target: &Target,
        class: FailureClass,
        now: Duration,
    ) -> (Duration, bool) {
        let again = match class {
            FailureClass::Unreachable => self.all.fail(now, MAX_UNREACHABLE_BACKOFF),
            FailureClass::NoSuchKind | FailureClass::Forbidden => {
                let pause = self.kinds.entry(kind).or_default();
                pause.fail(now, MAX_MISSING_KIND_BACKOFF)
            }
            FailureClass::Trouble => {
                let alone = self.fail_alone(target, now);
                alone.max(self.all.fail(now, MAX_UNREACHABLE_BACKOFF))
            }
            FailureClass::NoSuchObject | FailureClass::Refused | FailureClass::Other => {
                self.fail_alone(target, now)
            }
        };
        (again, self.is_new(kind, target, class))
    }

    fn fail_alone(&mut self, target: &Target, now: Duration) -> Duration {
        let failures = self.things.entry(target.clone()).or_default();
        *failures += 1;
        now + back_off(*failures)
    }

    /// Whether a failure is to be logged.
    fn is_new(&mut self, kind: Kind, target: &Target, class: FailureClass) -> bool {
        let alone = match class {
            FailureClass::Unreachable | FailureClass::NoSuchKind | FailureClass::Forbidden => None,
            FailureClass::Trouble
            | FailureClass::NoSuchObject
            | FailureClass::Refused
            | FailureClass::Other => Some(target.clone()),
        };
        let alike =
            |logged: &&(Kind, FailureClass, Option<Target>)| (logged.0, logged.1) == (kind, class);
        let few = self.logged.iter().filter(alike).count() < MAX_LOGGED_TARGETS;
        few && self.logged.insert((kind, class, alone))
    }

    /// Discards a target that is no longer reconciled.
    pub(super) fn forget(&mut self, target: &Target) {
        self.things.remove(target);
        self.logged
            .retain(|(_, _, thing)| thing.as_ref() != Some(target));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_unreachable_server_stops_all_kinds_and_calls_under_way_count_once() {
        let mut pauses = Pauses::default();
        let mut fail =
            |target, now| pauses.failed(Kind::Plan, &target, FailureClass::Unreachable, at(now));
        assert_eq!(fail(Target::Plan("a".into()), 10), (at(11), true));
        assert_eq!(fail(Target::Plan("b".into()), 10), (at(11), false));
        assert_eq!(fail(Target::Plan("a".into()), 11), (at(13), false));
        assert_eq!(pauses.until(Kind::Slice), at(13));
        assert!(pauses.succeeded(Kind::Config, &Target::Config));
        assert_eq!(pauses.until(Kind::Slice), at(0));
    }

    #[test]
    fn a_kind_that_is_missing_stops_no_other_kind() {
        let mut pauses = Pauses::default();
        let slices = Target::Bucket(7);
        pauses.failed(Kind::Slice, &slices, FailureClass::NoSuchKind, at(0));
        assert_eq!(pauses.until(Kind::Slice), at(1));
        assert_eq!(pauses.until(Kind::Plan), at(0));
        assert!(!pauses.succeeded(Kind::Plan, &Target::Plan("a".into())));
        assert_eq!(
            pauses.until(Kind::Slice),
            at(1),
            "another kind ends nothing"
        );
    }

    #[test]
    fn an_object_that_is_refused_waits_alone_and_ever_longer() {
        let mut pauses = Pauses::default();
        let (a, b) = (Target::Plan("a".into()), Target::Plan("b".into()));
        let mut fail = |target: &Target, now| {
            pauses
                .failed(Kind::Plan, target, FailureClass::Refused, at(now))
                .0
        };
        let again = [fail(&a, 0), fail(&a, 1), fail(&a, 3), fail(&b, 3)];
        assert_eq!(again, [at(1), at(3), at(7), at(4)]);
        assert_eq!(pauses.until(Kind::Plan), at(0));
    }

    #[test]
    fn a_failure_is_logged_once_per_object_and_for_few_objects() {
        let mut pauses = Pauses::default();
        let node = |n: u32| Target::Plan(n.to_string().into());
        let mut logged = 0;
        for round in 0..3 {
            for n in 0..100 {
                let (_, news) =
                    pauses.failed(Kind::Plan, &node(n), FailureClass::Refused, at(round));
                logged += u32::from(news);
            }
            pauses.succeeded(Kind::Plan, &node(1000));
        }
        assert_eq!(logged, 5);
        assert!(pauses.succeeded(Kind::Plan, &node(0)));
    }
}
