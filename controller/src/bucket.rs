//! A rate limiter: a token bucket with a bounded wait.

use std::time::{Duration, Instant};

/// A token bucket: a burst, then a fixed rate.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// The time between two tokens.
    interval: Duration,
    /// The tokens of a burst after the first one, as time.
    burst: Duration,
    /// The longest wait.
    longest: Duration,
    /// When the bucket is full again.
    full: Option<Instant>,
}

impl Bucket {
    pub(crate) fn new(a_second: u32, burst: u32, longest: Duration) -> Self {
        let interval = Duration::from_secs(1) / a_second.max(1);
        Self {
            interval,
            burst: interval * burst.saturating_sub(1),
            longest,
            full: None,
        }
    }

    /// `count` tokens a minute, which may be taken in one burst. The wait is never longer than zero.
    pub(crate) fn a_minute(count: u32) -> Self {
        let interval = Duration::from_secs(60) / count.max(1);
        Self {
            interval,
            burst: interval * count.saturating_sub(1),
            longest: Duration::ZERO,
            full: None,
        }
    }

    /// Takes a token and returns the wait before its use. If the wait is too long, it takes no token: `None`.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Duration> {
        let full = self.full.map_or(now, |full| full.max(now));
        let ahead = full - now;
        let wait = ahead.saturating_sub(self.burst);
        if wait > self.longest {
            return None;
        }
        self.full = Some(full + self.interval);
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_at_once_later_requests_wait_and_too_many_are_rejected() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10, 3, Duration::from_millis(250));
        let waits: Vec<_> = (0..8).map(|_| bucket.take(start)).collect();
        let of = |ms| Some(Duration::from_millis(ms));
        assert_eq!(
            waits,
            [of(0), of(0), of(0), of(100), of(200), None, None, None]
        );
        // Rejected requests took no tokens.
        let later = start + Duration::from_millis(300);
        assert_eq!(bucket.take(later), of(0));
        assert_eq!(bucket.take(later), of(100));
        let much_later = start + Duration::from_secs(60);
        let waits: Vec<_> = (0..4).map(|_| bucket.take(much_later)).collect();
        assert_eq!(waits, [of(0), of(0), of(0), of(100)]);
    }
}
