//! How often something is done: a token bucket whose waiting is bounded.

use std::time::{Duration, Instant};

/// Gives times to whoever asks, so many a second after a first burst.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// From one to the next.
    interval: Duration,
    /// How far it may be ahead, as time.
    burst: Duration,
    /// The longest wait.
    longest: Duration,
    /// When it is full again.
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

    /// So many a minute, all of them at once if need be, and nobody waits.
    pub(crate) fn a_minute(count: u32) -> Self {
        let interval = Duration::from_secs(60) / count.max(1);
        Self {
            interval,
            burst: interval * count.saturating_sub(1),
            longest: Duration::ZERO,
            full: None,
        }
    }

    /// How long to wait; `None` when that is too long, and then nothing is taken.
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
    fn a_burst_goes_at_once_the_next_wait_and_too_many_are_told() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10, 3, Duration::from_millis(250));
        let waits: Vec<_> = (0..8).map(|_| bucket.take(start)).collect();
        let of = |ms| Some(Duration::from_millis(ms));
        assert_eq!(
            waits,
            [of(0), of(0), of(0), of(100), of(200), None, None, None]
        );
        // Who was turned away took nothing.
        let later = start + Duration::from_millis(300);
        assert_eq!(bucket.take(later), of(0));
        assert_eq!(bucket.take(later), of(100));
        let much_later = start + Duration::from_secs(60);
        let waits: Vec<_> = (0..4).map(|_| bucket.take(much_later)).collect();
        assert_eq!(waits, [of(0), of(0), of(0), of(100)]);
    }
}
