//! The search for a fresher controller while the followed one is outdated. The stream of the followed one stays open
//! until another controller has begun to send a plan (make before break). If the API server is down for all
//! controllers, none is fresher by [`MARGIN`], and no agent moves.
//!
//! Touches: the clock, and what its caller does to ask a controller.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use portolan_proto::STALE_AFTER;
use tokio::time::{Instant, Timeout, sleep_until, timeout};

use super::link::Outdated;
use super::spread;

/// How much younger the objects of another controller have to be. Watches are silent for up to 75 s, so the ages of
/// two controllers that lost the same API server at the same time differ by less.
const MARGIN: Duration = Duration::from_secs(75);
/// Timeout of one attempt. It is longer than a controller needs to catch up with the agent's plan.
pub(super) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between two attempts. The delay before the first one depends on the node, so that the agents of one
/// controller do not all ask another one at once.
const INTERVAL: Duration = Duration::from_secs(20);

/// Asks one controller. Returns its stream if its objects are young enough, and it has begun to send a plan.
pub(super) type Attempt<T> = Pin<Box<dyn Future<Output = Option<T>> + Send>>;

/// The search, for a stream `T`. It rests while the followed controller is current.
pub(super) struct Search<T> {
    node: Arc<str>,
    followed: Option<Outdated>,
    due: Instant,
    attempts: usize,
    attempt: Option<Pin<Box<Timeout<Attempt<T>>>>>,
}

impl<T> Search<T> {
    pub(super) fn new(node: Arc<str>) -> Self {
        Self {
            node,
            followed: None,
            due: Instant::now(),
            attempts: 0,
            attempt: None,
        }
    }

    /// Takes a report of the followed controller; `None` if it is current.
    pub(super) fn reported(&mut self, followed: Option<Outdated>) {
        if self.followed.is_none() {
            self.due = Instant::now() + spread(INTERVAL, &self.node, 0);
        }
        self.followed = followed;
        // It was begun for another age.
        self.attempt = None;
    }

    /// Asks another controller at once.
    pub(super) fn again(&mut self) {
        self.due = Instant::now();
    }

    /// Waits until another controller has opened a stream. `ask` begins an attempt, by its number and the age below
    /// which the objects of the other controller have to be; `None` if there is no other controller. This can be
    /// cancelled and called again.
    pub(super) async fn found(&mut self, ask: impl Fn(usize, Duration) -> Option<Attempt<T>>) -> T {
        loop {
            let Some(followed) = self.followed else {
                return std::future::pending().await;
            };
            if self.attempt.is_none() {
                sleep_until(self.due).await;
                self.due = Instant::now() + INTERVAL;
                let younger_than = followed.age().saturating_sub(MARGIN).min(STALE_AFTER);
                let attempt = ask(self.attempts, younger_than);
                self.attempts = self.attempts.wrapping_add(1);
                self.attempt = attempt.map(|attempt| Box::pin(timeout(ATTEMPT_TIMEOUT, attempt)));
            }
            if let Some(attempt) = &mut self.attempt {
                let ended = attempt.await;
                self.attempt = None;
                if let Ok(Some(found)) = ended {
                    return found;
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
