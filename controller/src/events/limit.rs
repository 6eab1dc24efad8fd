//! How many events are written. Pure; the time is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

use super::About;

/// So many at once.
const BURST: u32 = 32;
/// After that, one in this time: a cluster where everything fails writes 60 a minute.
const EACH: Duration = Duration::from_secs(1);
/// The same is not said again about the same object in this time: something flaps, and the object's status
/// says how it is now.
const AGAIN: Duration = Duration::from_secs(300);

/// What was written of late.
#[derive(Debug)]
pub(super) struct Limit {
    /// Up to when everything that was written is paid for.
    paid: Duration,
    said: BTreeMap<(About, String), Duration>,
}

impl Limit {
    pub(super) fn new() -> Self {
        Self {
            paid: Duration::ZERO,
            said: BTreeMap::new(),
        }
    }

    /// Whether this may be written now, `now` after some beginning. If so it counts as written.
    pub(super) fn allows(&mut self, about: &About, reason: &str, now: Duration) -> bool {
        self.said.retain(|_, said| now < *said + AGAIN);
        let key = (about.clone(), reason.to_owned());
        if self.said.contains_key(&key) || self.paid > now + EACH * (BURST - 1) {
            return false;
        }
        self.paid = self.paid.max(now) + EACH;
        self.said.insert(key, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32) -> About {
        About::Node(format!("node-{number}").into())
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_flaps_is_said_once_in_a_while() {
        let mut limit = Limit::new();
        assert!(limit.allows(&node(1), "Failing", at(0)));
        assert!(!limit.allows(&node(1), "Failing", at(10)));
        assert!(limit.allows(&node(1), "InForce", at(11)), "that is news");
        assert!(limit.allows(&node(2), "Failing", at(11)));
        assert!(limit.allows(&node(1), "Failing", at(300)));
        assert_eq!(limit.said.len(), 3, "what is old is forgotten");
    }

    #[test]
    fn when_everything_fails_a_few_are_written_and_then_one_a_second() {
        let mut limit = Limit::new();
        let written = |limit: &mut Limit, nodes: std::ops::Range<u32>, now| {
            nodes
                .filter(|number| limit.allows(&node(*number), "Failing", at(now)))
                .count()
        };
        assert_eq!(written(&mut limit, 0..5000, 100), 32);
        assert_eq!(written(&mut limit, 5000..6000, 110), 10);
        assert_eq!(written(&mut limit, 6000..7000, 10_000), 32);
    }
}
