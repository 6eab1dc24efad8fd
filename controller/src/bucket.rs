//! Rate limiters: a token bucket with a bounded wait, and one for each of many clients.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Maximum number of clients with a bucket of their own. All further ones share one.
const MAX_SHARES: usize = 16_384;
/// Minimum interval between two searches for buckets that can be dropped. A search takes longer than a request.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// A token bucket: a burst, then a fixed rate.
#[derive(Debug, Clone)]
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

    /// Whether no token of the burst is missing.
    fn is_full(&self, now: Instant) -> bool {
        self.full.is_none_or(|full| full <= now)
    }
}

/// A bucket for each client, of bounded memory for any number of clients.
#[derive(Debug)]
pub(crate) struct Shares<K> {
    /// The bucket of a client that was not seen before.
    unused: Bucket,
    of: HashMap<K, Bucket>,
    /// The bucket of all clients beyond [`MAX_SHARES`].
    others: Bucket,
    /// The last search for buckets that can be dropped.
    swept: Option<Instant>,
}

impl<K: Clone + Eq + Hash> Shares<K> {
    /// Gives each client such a bucket.
    fn of(bucket: Bucket) -> Self {
        Self {
            others: bucket.clone(),
            unused: bucket,
            of: HashMap::new(),
            swept: None,
        }
    }

    /// Buckets with this rate per second and burst; as [`Bucket::new`].
    pub(crate) fn new((a_second, burst): (u32, u32), longest: Duration) -> Self {
        Self::of(Bucket::new(a_second, burst, longest))
    }

    /// Buckets with this number of tokens a minute; as [`Bucket::a_minute`].
    pub(crate) fn a_minute(count: u32) -> Self {
        Self::of(Bucket::a_minute(count))
    }

    /// As [`Bucket::take`], from the bucket of this client.
    pub(crate) fn take(&mut self, client: &K, now: Instant) -> Option<Duration> {
        if let Some(bucket) = self.of.get_mut(client) {
            return bucket.take(now);
        }
        if self.of.len() >= MAX_SHARES {
            self.sweep(now);
        }
        if self.of.len() >= MAX_SHARES {
            return self.others.take(now);
        }
        let mut bucket = self.unused.clone();
        let wait = bucket.take(now);
        self.of.insert(client.clone(), bucket);
        wait
    }

    /// Drops the buckets that are full again: they are equal to new ones.
    fn sweep(&mut self, now: Instant) {
        let recent = |swept: Instant| now.saturating_duration_since(swept) < SWEEP_INTERVAL;
        if !self.swept.is_some_and(recent) {
            self.swept = Some(now);
            self.of.retain(|_, bucket| !bucket.is_full(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    #[test]
    fn each_client_has_a_bucket_of_its_own() {
        let start = Instant::now();
        let mut shares = Shares::new((1, 2), Duration::ZERO);
        let waits: Vec<_> = (0..3).map(|_| shares.take(&"loud", start)).collect();
        assert_eq!(waits, [Some(Duration::ZERO), Some(Duration::ZERO), None]);
        assert_eq!(shares.take(&"quiet", start), Some(Duration::ZERO));
        let mut rare = Shares::a_minute(1);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(rare.take(&"node", at(0)).is_some());
        assert!(rare.take(&"node", at(59)).is_none());
        assert!(rare.take(&"node", at(60)).is_some());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// Law `shares`: memory is bounded for any number of clients, and others take nothing from the bucket that a
        /// client uses.
        #[test]
        fn many_clients_take_bounded_memory_and_nothing_from_each_other(
            many in 0..3 * MAX_SHARES,
            later in 0_u64..3,
        ) {
            let start = Instant::now();
            let mut shares = Shares::new((1, 4), Duration::ZERO);
            let known = usize::MAX;
            for _ in 0..4 {
                prop_assert!(shares.take(&known, start).is_some());
            }
            let now = start + Duration::from_secs(later);
            for number in 0..many {
                shares.take(&number, now);
                prop_assert!(shares.of.len() <= MAX_SHARES);
            }
            let left = (0..4).filter(|_| shares.take(&known, now).is_some());
            prop_assert_eq!(u64::try_from(left.count()), Ok(later));
        }
    }
}
