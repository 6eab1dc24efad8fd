//! Refusals are counted always, and told in the log so often that a flood of them does not flood it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::warn;

use super::refusal::{Reason, Refusal};
use crate::metrics::Counters;

/// The same is told again after so long.
const AGAIN: Duration = Duration::from_secs(60);
/// So many are remembered as told; while there are more, new ones wait.
const MOST: usize = 4096;

/// Where refusals go.
#[derive(Debug)]
pub struct Refusals {
    counters: Arc<Counters>,
    told: Mutex<Told>,
}

impl Refusals {
    /// Counted there.
    pub fn new(counters: Arc<Counters>) -> Self {
        let told = Mutex::default();
        Self { counters, told }
    }

    /// Somebody was refused: an agent of a node, or who comes from an address.
    pub(crate) fn note(&self, who: &str, refusal: &Refusal) {
        self.counters.refused(refusal.reason);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(unsaid) = told.again(who, refusal.reason, Instant::now()) else {
            return;
        };
        drop(told);
        let message = &refusal.message;
        if unsaid == 0 {
            warn!(who, reason = ?refusal.reason, "refused: {message}");
        } else {
            warn!(who, reason = ?refusal.reason, unsaid, "refused, as so often before: {message}");
        }
    }
}

/// What was told when.
#[derive(Debug, Default)]
struct Told {
    last: HashMap<(String, Reason), (Instant, u64)>,
}

impl Told {
    /// Whether it is time to tell this; if so, how often it was not told meanwhile.
    fn again(&mut self, who: &str, reason: Reason, now: Instant) -> Option<u64> {
        let recent = |at: Instant| now.duration_since(at) < AGAIN;
        let key = (who.to_owned(), reason);
        if let Some((at, unsaid)) = self.last.get_mut(&key) {
            if recent(*at) {
                *unsaid += 1;
                return None;
            }
            *at = now;
            return Some(std::mem::take(unsaid));
        }
        if self.last.len() >= MOST {
            self.last.retain(|_, (at, _)| recent(*at));
        }
        if self.last.len() >= MOST {
            return None;
        }
        self.last.insert(key, (now, 0));
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_told_once_a_minute_with_what_was_kept_back() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut told = Told::default();
        assert_eq!(told.again("a", Reason::expired, at(0)), Some(0));
        assert_eq!(told.again("a", Reason::expired, at(1)), None);
        assert_eq!(told.again("a", Reason::expired, at(59)), None);
        assert_eq!(told.again("a", Reason::audience, at(59)), Some(0));
        assert_eq!(told.again("b", Reason::expired, at(59)), Some(0));
        assert_eq!(told.again("a", Reason::expired, at(60)), Some(2));
        assert_eq!(told.again("a", Reason::expired, at(120)), Some(0));
    }

    #[test]
    fn a_flood_from_many_addresses_is_bounded() {
        let start = Instant::now();
        let mut told = Told::default();
        let said = |told: &mut Told, at| {
            let many = (0..2 * MOST).map(|number| number.to_string());
            many.filter(|who| told.again(who, Reason::silent, at).is_some())
                .count()
        };
        assert_eq!(said(&mut told, start), MOST);
        assert_eq!(said(&mut told, start + AGAIN / 2), 0);
        assert_eq!(said(&mut told, start + AGAIN), MOST);
    }
}
