//! How many events are written. Pure; the time is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{About, Event};

/// So many at once.
const BURST: u32 = 32;
/// After that, one in this time: a cluster where everything fails writes 60 a minute.
const EACH: Duration = Duration::from_secs(1);
/// The same is not said again about the same object in this time: something flaps, and the object's status
/// says how it is now.
const AGAIN: Duration = Duration::from_secs(300);

/// What becomes of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is written.
    Write,
    /// It was said already.
    Said,
    /// Too much is being said.
    TooMuch,
}

/// What was written of late.
#[derive(Debug)]
pub(super) struct Limit {
    /// Up to when everything that was written is paid for.
    paid: Duration,
    said: BTreeMap<(About, String, String), Duration>,
}

impl Limit {
    pub(super) fn new() -> Self {
        Self {
            paid: Duration::ZERO,
            said: BTreeMap::new(),
        }
    }

    /// Whether this may be written now, `now` after some beginning. If so it counts as written.
    pub(super) fn judge(&mut self, event: &Event, now: Duration) -> Verdict {
        self.said.retain(|_, said| now < *said + AGAIN);
        let note = match &event.about {
            // The words of a node that flaps differ from time to time.
            About::Node(_) => String::new(),
            About::Service(_) | About::ProxyConfig => event.note.clone(),
        };
        let key = (event.about.clone(), event.reason.clone(), note);
        if self.said.contains_key(&key) {
            return Verdict::Said;
        }
        if self.paid > now + EACH * (BURST - 1) {
            return Verdict::TooMuch;
        }
        self.paid = self.paid.max(now) + EACH;
        self.said.insert(key, now);
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
    fn what_flaps_is_said_once_in_a_while() {
        let mut limit = Limit::new();
        let write = Verdict::Write;
        assert_eq!(limit.judge(&node(1, "Failing"), at(0)), write);
        assert_eq!(limit.judge(&node(1, "Failing"), at(10)), Verdict::Said);
        assert_eq!(limit.judge(&node(1, "InForce"), at(11)), write, "news");
        assert_eq!(limit.judge(&node(2, "Failing"), at(11)), write);
        assert_eq!(limit.judge(&node(1, "Failing"), at(300)), write);
        assert_eq!(limit.said.len(), 3, "what is old is forgotten");
    }

    #[test]
    fn another_change_that_fails_is_news() {
        let mut limit = Limit::new();
        let taken_back = |note| event(About::ProxyConfig, "RolledBack", note);
        let first = taken_back("default-2 failed");
        assert_eq!(limit.judge(&first, at(0)), Verdict::Write);
        assert_eq!(limit.judge(&first, at(1)), Verdict::Said);
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
