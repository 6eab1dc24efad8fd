//! Sampling of traces. The decision is made when a change has ended, so slow and failed changes are kept, up to a
//! rate limit, and a share of the others.

use std::time::{Duration, Instant};

use crate::bucket::Bucket;

/// Maximum number of slow or failed traces per minute that are kept in addition to the share. It protects the trace
/// store when everything in the cluster is slow.
const REMARKABLE_PER_MINUTE: u32 = 60;

/// Decides which traces are kept.
#[derive(Debug)]
pub struct Sampling {
    /// The share of all traces, 0 to 1.
    share: f64,
    /// A change is slow from this duration on.
    slow: Duration,
    remarkable: Bucket,
}

/// How a change ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub(super) trace: [u8; 16],
    pub(super) took: Duration,
    pub(super) failed: bool,
}

impl Sampling {
    /// Keeps a share (0 to 1) of all traces, and those of changes that take `slow` or longer.
    pub fn new(share: f64, slow: Duration) -> Self {
        Self {
            share,
            slow,
            remarkable: Bucket::a_minute(REMARKABLE_PER_MINUTE),
        }
    }

    /// Whether a trace is kept.
    pub(super) fn keeps(&mut self, end: End, now: Instant) -> bool {
        let remarkable = end.failed || end.took >= self.slow;
        self.is_in_share(end.trace) || (remarkable && self.remarkable.take(now).is_some())
    }

    /// By the trace ID, like other programs: those with the same share keep the same traces.
    fn is_in_share(&self, trace: [u8; 16]) -> bool {
        let [.., a, b, c, d, e, f, g] = trace;
        let random = u64::from_be_bytes([0, a, b, c, d, e, f, g]);
        // A double holds 53 of the 56 bits; the rest does not matter here.
        #[allow(clippy::cast_precision_loss, reason = "see above")]
        let place = random as f64 / (1_u64 << 56) as f64;
        place < self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Duration = Duration::from_secs(5);

    fn end(seed: u8, took: Duration, failed: bool) -> End {
        let mut trace = [1; 16];
        trace[9] = seed;
        End {
            trace,
            took,
            failed,
        }
    }

    #[test]
    fn a_share_of_all_is_kept_by_the_traces_own_number() {
        let now = Instant::now();
        let kept = |share| {
            let mut sampling = Sampling::new(share, SLOW);
            let all = 0..=255_u8;
            all.filter(|seed| sampling.keeps(end(*seed, Duration::ZERO, false), now))
                .count()
        };
        assert_eq!((kept(0.0), kept(0.25), kept(1.0)), (0, 64, 256));
    }

    #[test]
    fn slow_and_failed_changes_are_kept_up_to_a_limit() {
        let now = Instant::now();
        let mut sampling = Sampling::new(0.0, SLOW);
        assert!(sampling.keeps(end(1, SLOW, false), now));
        assert!(!sampling.keeps(end(1, SLOW - Duration::from_millis(1), false), now));
        let kept = (0..200).filter(|_| sampling.keeps(end(1, Duration::ZERO, true), now));
        assert_eq!(kept.count(), 59);
        let later = now + Duration::from_secs(2);
        assert!(sampling.keeps(end(1, SLOW, false), later));
    }
}
