//! Lists of one kind that agents requested, and when they may begin.
//!
//! A list of a large cluster is expensive for the API server. Whatever agents report, requested lists take a tenth of the
//! time at most, and one list answers all requests that arrived before it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Minimum time from the end of a list to the next one that agents requested.
const MIN_INTERVAL: Duration = Duration::from_secs(5);
/// The minimum for lists that take long, as a multiple of the duration of the last one.
const INTERVAL_FACTOR: u32 = 10;

/// The requested lists of a kind.
#[derive(Debug)]
pub(super) struct Relists {
    asked: Arc<Notify>,
    /// When the last list began.
    began: Instant,
    /// The earliest time of the next requested list.
    earliest: Instant,
}

impl Relists {
    /// Lists that `asked` requests.
    pub(super) fn new(asked: Arc<Notify>) -> Self {
        let now = Instant::now();
        Self {
            asked,
            began: now,
            earliest: now,
        }
    }

    /// Records that a list begins, requested or not.
    pub(super) fn begin(&mut self) {
        self.began = Instant::now();
    }

    /// Records that the list is complete, and returns when it began.
    pub(super) fn end(&mut self) -> Instant {
        let pause = MIN_INTERVAL.max(self.began.elapsed() * INTERVAL_FACTOR);
        self.earliest = Instant::now() + pause;
        self.began
    }

    /// Waits until a list is requested and may begin. A request that arrives earlier is kept, also if this is dropped.
    /// Meanwhile the watch goes on, and usually delivers what the agent has.
    pub(super) async fn next(&self) {
        sleep_until(self.earliest).await;
        self.asked.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requested_lists_take_a_tenth_of_the_time_at_most() {
        for (took, pause) in [(0, 5), (400, 5), (3000, 30)] {
            let asked: Arc<Notify> = Arc::default();
            let mut relists = Relists::new(asked.clone());
            let start = Instant::now();
            asked.notify_one();
            relists.next().await;
            assert_eq!(start.elapsed(), Duration::ZERO, "no list was made yet");
            relists.begin();
            advance(Duration::from_millis(took)).await;
            relists.end();
            let end = Instant::now();
            // The one that arrived first is kept; the others are for the same list.
            (0..1000).for_each(|_| asked.notify_one());
            relists.next().await;
            let waited = end.elapsed();
            assert!(waited >= Duration::from_secs(pause), "{waited:?}");
            assert!(waited < Duration::from_secs(pause + 1), "{waited:?}");
            let more = tokio::time::timeout(Duration::from_secs(600), relists.next());
            assert!(more.await.is_err(), "nothing else was requested");
        }
    }
}
