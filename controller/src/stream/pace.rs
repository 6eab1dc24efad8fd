//! The interval between batches to an agent.
//!
//! A single change is sent at once. Frequent changes would each wake every stream and be a batch for every agent;
//! instead, all changes before a node's next turn are sent as one batch. The more streams there are, the longer the
//! interval. That saves the cost per batch, not the cost per entry.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Interval between two batches of a stream, per open stream. A controller therefore sends at most 10,000 batches per
/// second.
const INTERVAL_PER_STREAM: Duration = Duration::from_micros(100);
/// Maximum interval between two batches of a stream, for any number of streams.
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// The pace of all streams of a controller.
#[derive(Debug, Clone, Default)]
pub(super) struct Pace {
    streams: Arc<AtomicU32>,
}

impl Pace {
    /// Registers a stream until the result is dropped.
    pub(super) fn join(&self) -> Turns {
        self.streams.fetch_add(1, Ordering::Relaxed);
        Turns {
            pace: self.clone(),
            last: None,
        }
    }

    fn interval(&self) -> Duration {
        (INTERVAL_PER_STREAM * self.streams.load(Ordering::Relaxed)).min(MAX_INTERVAL)
    }
}

/// The turns of one stream.
#[derive(Debug)]
pub(super) struct Turns {
    pace: Pace,
    last: Option<Instant>,
}

impl Turns {
    /// Records that a batch is sent.
    pub(super) fn taken(&mut self) {
        self.last = Some(Instant::now());
    }

    /// Waits for a change and for the turn. Returns false if no further change will come.
    pub(super) async fn next(&self, changes: &mut watch::Receiver<u64>) -> bool {
        if changes.changed().await.is_err() {
            return false;
        }
        if let Some(last) = self.last {
            sleep_until(last + self.pace.interval()).await;
        }
        true
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.pace.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_alone_goes_at_once_and_many_share_a_turn() {
        let pace = Pace::default();
        let others: Vec<_> = (1..500).map(|_| pace.join()).collect();
        let mut turns = pace.join();
        let changed = watch::Sender::new(0);
        let mut changes = changed.subscribe();

        let start = Instant::now();
        changed.send_replace(1);
        assert!(turns.next(&mut changes).await);
        assert_eq!(start.elapsed(), Duration::ZERO);
        turns.taken();
        changed.send_replace(2);
        changed.send_replace(3);
        assert!(turns.next(&mut changes).await);
        assert_eq!(start.elapsed(), Duration::from_millis(50));
        assert!(!changes.has_changed().unwrap(), "both were in one turn");

        // The only stream.
        drop(others);
        turns.taken();
        changed.send_replace(4);
        assert!(turns.next(&mut changes).await);
        assert!(start.elapsed() < Duration::from_millis(52));
        drop(changed);
        assert!(!turns.next(&mut changes).await);
    }

    #[test]
    fn the_interval_is_bounded_for_any_number_of_streams() {
        let pace = Pace::default();
        pace.streams.store(u32::MAX, Ordering::Relaxed);
        assert_eq!(pace.interval(), MAX_INTERVAL);
    }
}
