//! Lists of one kind that agents requested, and when they may begin.
//!
//! A list of a large cluster is expensive for the API server. Whatever agents report, requested lists take a tenth of the
//! time at most, and one list answers all requests that arrived before it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Minimum time from the end of a list to the next one that agents requested.
const MIN_INTERVAL: Duration = Duration::from_secs(5);
/// The minimum for lists that take long, as a multiple of the duration of the last one.
const INTERVAL_FACTOR: u32 = 10;

/// Time for which a request counts. The agent waits for a shorter time, and may request another list after a minute; by
/// then it may not need one.
const REQUEST_LIFETIME: Duration = Duration::from_secs(60);

/// When a list of a kind was requested last.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked(watch::Sender<Option<Instant>>);

impl Asked {
    /// Requests a list.
    pub(super) fn ask(&self) {
        self.0.send_replace(Some(Instant::now()));
    }
}

/// The requested lists of a kind.
#[derive(Debug)]
pub(super) struct Relists {
    asked: Asked,
    /// When the last list began.
    began: Instant,
    /// The earliest time of the next requested list.
    earliest: Instant,
}

impl Relists {
    /// Lists that `asked` requests.
    pub(super) fn new(asked: Asked) -> Self {
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

    /// Waits until a list is requested and may begin. A request that arrives earlier counts for [`REQUEST_LIFETIME`], also
    /// if this is dropped. Meanwhile the watch goes on, and usually delivers what the agent has.
    pub(super) async fn next(&self) {
        sleep_until(self.earliest).await;
        let counts = |asked: &Option<Instant>| {
            asked.is_some_and(|at| at > self.began && at.elapsed() < REQUEST_LIFETIME)
        };
        // The sender is a field, so it is not dropped.
        drop(self.asked.0.subscribe().wait_for(counts).await);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requested_lists_take_a_tenth_of_the_time_at_most() {
        for (took, pause) in [(0, 5), (400, 5), (3000, 30)] {
            let asked = Asked::default();
            let mut relists = Relists::new(asked.clone());
            advance(Duration::from_millis(1)).await;
            let start = Instant::now();
            asked.ask();
            relists.next().await;
            assert_eq!(start.elapsed(), Duration::ZERO, "no list was made yet");
            relists.begin();
            advance(Duration::from_millis(took)).await;
            relists.end();
            let end = Instant::now();
            // The one that arrived first is kept; the others are for the same list.
            advance(Duration::from_millis(1)).await;
            (0..1000).for_each(|_| asked.ask());
            relists.next().await;
            let waited = end.elapsed();
            assert!(waited >= Duration::from_secs(pause), "{waited:?}");
            assert!(waited < Duration::from_secs(pause + 1), "{waited:?}");
            relists.begin();
            let more = tokio::time::timeout(Duration::from_secs(600), relists.next());
            assert!(more.await.is_err(), "nothing else was requested");
        }
    }

    /// Its agent has the objects by then, from this controller or another one.
    #[tokio::test(start_paused = true)]
    async fn a_request_that_no_agent_waits_for_causes_no_list() {
        let asked = Asked::default();
        let mut relists = Relists::new(asked.clone());
        advance(Duration::from_millis(1)).await;
        asked.ask();
        relists.begin();
        advance(Duration::from_secs(30)).await;
        asked.ask();
        relists.end();
        let hour = Duration::from_secs(3600);
        let late = tokio::time::timeout(hour, relists.next()).await;
        assert!(
            late.is_err(),
            "the list took 30 s, so the next one begins after 5 minutes"
        );
        asked.ask();
        let start = Instant::now();
        relists.next().await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    /// A list for another reason answers a request that arrived before it.
    #[tokio::test(start_paused = true)]
    async fn one_list_answers_earlier_requests() {
        let asked = Asked::default();
        let mut relists = Relists::new(asked.clone());
        advance(Duration::from_millis(1)).await;
        asked.ask();
        relists.begin();
        relists.end();
        let more = tokio::time::timeout(Duration::from_secs(50), relists.next());
        assert!(more.await.is_err());
    }
}
