//! Rate limiters: a token bucket with a bounded wait, and one such bucket for each of many clients.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Maximum number of clients with a bucket of their own. All further ones share one.
const MAX_CLIENTS: usize = 16_384;
/// Minimum interval between two searches for buckets that are not needed any more.
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

/// A rate and a burst.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    /// Tokens per second.
    pub(crate) a_second: u32,
    /// Tokens at once.
    pub(crate) burst: u32,
}

impl Rate {
    /// Tokens per second, and tokens at once.
    pub(crate) const fn new(a_second: u32, burst: u32) -> Self {
        Self { a_second, burst }
    }

    /// A full bucket.
    pub(crate) fn bucket(self, longest: Duration) -> Bucket {
        Bucket::new(self.a_second, self.burst, longest)
    }
}

/// A bucket for each client, of bounded memory for any number of clients.
#[derive(Debug)]
pub(crate) struct Shares<K> {
    /// The bucket of a client that was not seen before.
    unused: Bucket,
    most: usize,
    clients: HashMap<K, Bucket>,
    /// The bucket of all further clients.
    others: Bucket,
    /// The last search for buckets that can be dropped.
    swept: Option<Instant>,
}

impl<K: Clone + Eq + Hash> Shares<K> {
    /// Buckets with this rate.
    pub(crate) fn new(rate: Rate, longest: Duration) -> Self {
        Self::bounded(rate.bucket(longest), MAX_CLIENTS)
    }

    /// Buckets with this number of tokens a minute; as [`Bucket::a_minute`].
    pub(crate) fn a_minute(count: u32) -> Self {
        Self::bounded(Bucket::a_minute(count), MAX_CLIENTS)
    }

    fn bounded(bucket: Bucket, most: usize) -> Self {
        Self {
            others: bucket.clone(),
            unused: bucket,
            most,
            clients: HashMap::new(),
            swept: None,
        }
    }

    /// As [`Bucket::take`], from the bucket of this client.
    pub(crate) fn take(&mut self, client: &K, now: Instant) -> Option<Duration> {
        if let Some(bucket) = self.clients.get_mut(client) {
            return bucket.take(now);
        }
        self.sweep(now);
        if self.clients.len() >= self.most {
            return self.others.take(now);
        }
        let bucket = self.clients.entry(client.clone());
        bucket.or_insert_with(|| self.unused.clone()).take(now)
    }

    /// Drops the buckets that are full again, because they equal new ones. A search through all of them for each client
    /// that comes would be slow.
    fn sweep(&mut self, now: Instant) {
        let recent = |at: Instant| now.saturating_duration_since(at) < SWEEP_INTERVAL;
        if self.clients.len() < self.most || self.swept.is_some_and(recent) {
            return;
        }
        self.swept = Some(now);
        self.clients.retain(|_, bucket| !bucket.is_full(now));
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
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

    const LONGEST: Duration = Duration::from_millis(2500);
    const RATE: Rate = Rate::new(1, 3);

    proptest! {
        /// Each client is treated as if it had a bucket for ever, as long as few clients are active at a time; memory
        /// is bounded with any number.
        #[test]
        fn clients_do_not_notice_each_other(
            requests in vec((0..200_u8, 300..4000_u64), 0..300),
        ) {
            let (mut bounded, mut ideal) = (Shares::bounded(RATE.bucket(LONGEST), 32), HashMap::new());
            let mut few = Shares::bounded(RATE.bucket(LONGEST), 4);
            let mut now = Instant::now();
            for (client, milliseconds) in requests {
                now += Duration::from_millis(milliseconds);
                let own: &mut Bucket = ideal.entry(client).or_insert_with(|| RATE.bucket(LONGEST));
                prop_assert_eq!(bounded.take(&client, now), own.take(now));
                few.take(&client, now);
                prop_assert!(few.clients.len() <= 4 && bounded.clients.len() <= 32);
            }
        }
    }

    #[test]
    fn clients_beyond_the_maximum_share_a_bucket_until_others_are_gone() {
        let start = Instant::now();
        let mut shares = Shares::bounded(RATE.bucket(Duration::ZERO), 2);
        for client in ["a", "b"] {
            assert_eq!(shares.take(&client, start), Some(Duration::ZERO));
        }
        let taken = |shares: &mut Shares<&'static str>, client: &'static str, at| {
            let takes = (0..5).filter(|_| shares.take(&client, at).is_some());
            takes.count()
        };
        assert_eq!(taken(&mut shares, "c", start), 3);
        assert_eq!(taken(&mut shares, "d", start), 0, "c took all of it");
        let later = start + Duration::from_secs(1);
        assert_eq!(taken(&mut shares, "d", later), 3);
        assert_eq!(taken(&mut shares, "e", later), 3, "a and b are gone");
    }

    #[test]
    fn each_client_has_a_bucket_of_its_own() {
        let start = Instant::now();
        let mut shares = Shares::new(Rate::new(1, 2), Duration::ZERO);
        let waits: Vec<_> = (0..3).map(|_| shares.take(&"loud", start)).collect();
        assert_eq!(waits, [Some(Duration::ZERO), Some(Duration::ZERO), None]);
        assert_eq!(shares.take(&"quiet", start), Some(Duration::ZERO));
        let mut rare = Shares::a_minute(1);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(rare.take(&"node", at(0)).is_some());
        assert!(rare.take(&"node", at(59)).is_none());
        assert!(rare.take(&"node", at(60)).is_some());
    }
}
