//! Rate limit for events. Pure; the time is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{About, Event};

/// Maximum number of events in one burst, about Services and about everything else.
const EVENT_BURST: u32 = 32;
/// Interval of events after the burst: at most 60 per minute, even if everything fails.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum interval between equal events about one object, for objects that flap. The object's status has the current
/// state.
const REPEAT_INTERVAL: Duration = Duration::from_secs(300);

/// What happens to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is written.
    Write,
    /// It was written recently.
    Repeated,
    /// The rate limit is exceeded.
    RateLimited,
}

/// Recently written events.
#[derive(Debug)]
pub(super) struct Limit {
    /// Time up to which the written events about Services use their rate limit. Users of single Services cause them,
    /// so they have a limit of their own (S-229).
    services_until: Duration,
    /// The same for all other events.
    others_until: Duration,
    written: BTreeMap<(About, String, String), Duration>,
}

impl Limit {
    pub(super) fn new() -> Self {
        Self {
            services_until: Duration::ZERO,
            others_until: Duration::ZERO,
            written: BTreeMap::new(),
        }
    }

    /// Whether this event may be written at `now`, the time since some start. If so, it counts as written.
    pub(super) fn judge(&mut self, event: &Event, now: Duration) -> Verdict {
        self.written
            .retain(|_, written| now < *written + REPEAT_INTERVAL);
        let note = match &event.about {
            // Ignore the note: it varies while a node flaps.
            About::Node(_) => String::new(),
            About::Service(_) | About::ProxyConfig => event.note.clone(),
        };
        let key = (event.about.clone(), event.reason.clone(), note);
        if self.written.contains_key(&key) {
            return Verdict::Repeated;
        }
        let used_until = match &event.about {
            About::Service(_) => &mut self.services_until,
            About::Node(_) | About::ProxyConfig => &mut self.others_until,
        };
        if *used_until > now + EVENT_INTERVAL * (EVENT_BURST - 1) {
            return Verdict::RateLimited;
        }
        *used_until = now.max(*used_until) + EVENT_INTERVAL;
        self.written.insert(key, now);
        Verdict::Write
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Severity;

    fn event(about: About, reason: &str, note: &str) -> Event {
        Event {
            about,
            severity: Severity::Warning,
            reason: reason.into(),
            action: "Program",
            note: note.into(),
        }
    }

    fn node(number: u32, reason: &str) -> Event {
        event(About::Node(format!("node-{number}").into()), reason, "so")
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_object_that_flaps_is_reported_once_per_interval() {
        let mut limit = Limit::new();
        let write = Verdict::Write;
        assert_eq!(limit.judge(&node(1, "Failing"), at(0)), write);
        assert_eq!(limit.judge(&node(1, "Failing"), at(10)), Verdict::Repeated);
        assert_eq!(limit.judge(&node(1, "InForce"), at(11)), write, "news");
        assert_eq!(limit.judge(&node(2, "Failing"), at(11)), write);
        assert_eq!(limit.judge(&node(1, "Failing"), at(300)), write);
        assert_eq!(limit.written.len(), 3, "an old event is forgotten");
    }

    /// S-229.
    #[test]
    fn events_about_services_leave_those_about_nodes_their_budget() {
        let mut limit = Limit::new();
        let service = |number: u32| {
            let id = portolan_plan::ServiceId::new("shop", format!("web-{number}"));
            event(About::Service(id), "SchedulerMissing", "no lblc")
        };
        let verdicts: Vec<_> = (0..100).map(|n| limit.judge(&service(n), at(1))).collect();
        assert_eq!(verdicts.last(), Some(&Verdict::RateLimited));
        assert_eq!(limit.judge(&node(1, "Failing"), at(1)), Verdict::Write);
    }

    #[test]
    fn a_failure_of_another_change_is_a_new_event() {
        let mut limit = Limit::new();
        let taken_back = |note| event(About::ProxyConfig, "RolledBack", note);
        let first = taken_back("default-2 failed");
        assert_eq!(limit.judge(&first, at(0)), Verdict::Write);
        assert_eq!(limit.judge(&first, at(1)), Verdict::Repeated);
        let second = taken_back("default-3 failed");
        assert_eq!(limit.judge(&second, at(2)), Verdict::Write);
    }

    #[test]
    fn when_everything_fails_a_few_are_written_and_then_one_a_second() {
        let mut limit = Limit::new();
        let written = |limit: &mut Limit, nodes: std::ops::Range<u32>, now| {
            let verdicts = nodes.map(|number| limit.judge(&node(number, "Failing"), at(now)));
            verdicts
                .filter(|verdict| *verdict == Verdict::Write)
                .count()
        };
        assert_eq!(written(&mut limit, 0..5000, 100), 32);
        assert_eq!(written(&mut limit, 5000..6000, 110), 10);
        assert_eq!(written(&mut limit, 6000..7000, 10_000), 32);
    }
}
