//! Counts every refusal, and logs repeated refusals at a limited rate.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::warn;

use crate::refusal::{Reason, Refusal};
use crate::telemetry::metrics::Counters;

/// Minimum interval between log lines about the same client and reason.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of pairs of client and reason that are stored. Beyond it, new refusals are not logged.
const MAX_ENTRIES: usize = 4096;

/// Counts and logs refusals.
#[derive(Debug)]
pub struct Refusals {
    counters: Arc<Counters>,
    limiter: Mutex<LogLimiter>,
}

impl Refusals {
    /// Refusals that use these counters.
    pub fn new(counters: Arc<Counters>) -> Self {
        let limiter = Mutex::default();
        Self { counters, limiter }
    }

    /// Counts a refused client, named by its node or address, and logs it unless logged recently.
    pub(crate) fn note(&self, who: &str, refusal: &Refusal) {
        self.counters.refused(refusal.reason);
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(unsaid) = limiter.again(who, refusal.reason, Instant::now()) else {
            return;
        };
        drop(limiter);
        let message = &refusal.message;
        if unsaid == 0 {
            warn!(who, reason = ?refusal.reason, "refused: {message}");
        } else {
            warn!(who, reason = ?refusal.reason, unsaid, "refused (repeated): {message}");
        }
    }
}

/// Refusals logged recently.
#[derive(Debug, Default)]
struct LogLimiter {
    last: HashMap<(String, Reason), (Instant, u64)>,
}

impl LogLimiter {
    /// Whether to log this refusal now; if so, the number of refusals suppressed since the last line.
    fn again(&mut self, who: &str, reason: Reason, now: Instant) -> Option<u64> {
        let recent = |at: Instant| now.duration_since(at) < LOG_INTERVAL;
        let key = (who.to_owned(), reason);
        if let Some((at, unsaid)) = self.last.get_mut(&key) {
            if recent(*at) {
                *unsaid += 1;
                return None;
            }
            *at = now;
            return Some(std::mem::take(unsaid));
        }
        if self.last.len() >= MAX_ENTRIES {
            self.last.retain(|_, (at, _)| recent(*at));
        }
        if self.last.len() >= MAX_ENTRIES {
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
    fn a_repeated_refusal_is_logged_once_a_minute_with_the_suppressed_count() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut limiter = LogLimiter::default();
        assert_eq!(limiter.again("a", Reason::expired, at(0)), Some(0));
        assert_eq!(limiter.again("a", Reason::expired, at(1)), None);
        assert_eq!(limiter.again("a", Reason::expired, at(59)), None);
        assert_eq!(limiter.again("a", Reason::audience, at(59)), Some(0));
        assert_eq!(limiter.again("b", Reason::expired, at(59)), Some(0));
        assert_eq!(limiter.again("a", Reason::expired, at(60)), Some(2));
        assert_eq!(limiter.again("a", Reason::expired, at(120)), Some(0));
    }

    #[test]
    fn a_flood_from_many_addresses_is_bounded() {
        let start = Instant::now();
        let mut limiter = LogLimiter::default();
        let count_logged = |limiter: &mut LogLimiter, at| {
            let many = (0..2 * MAX_ENTRIES).map(|number| number.to_string());
            many.filter(|who| limiter.again(who, Reason::silent, at).is_some())
                .count()
        };
        assert_eq!(count_logged(&mut limiter, start), MAX_ENTRIES);
        assert_eq!(count_logged(&mut limiter, start + LOG_INTERVAL / 2), 0);
        assert_eq!(
            count_logged(&mut limiter, start + LOG_INTERVAL),
            MAX_ENTRIES
        );
    }
}
