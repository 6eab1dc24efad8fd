//! The return to the first controller of a node, so that agents spread again after controllers were restarted one after
//! the other. As in the search for a fresher controller, the stream of the followed one stays open until the first one
//! has begun to send a plan (make before break).
//!
//! Touches: the clock, and what its caller does to ask the controller.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Timeout, sleep_until, timeout};

use super::search::{ATTEMPT_TIMEOUT, Attempt};

/// The return, for a stream `T`.
pub(super) struct Return<T> {
    interval: Duration,
    due: Instant,
    attempt: Option<Pin<Box<Timeout<Attempt<T>>>>>,
}

impl<T> Return<T> {
    /// Attempts at this interval.
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval,
            due: Instant::now() + interval,
            attempt: None,
        }
    }

    /// Waits until the first controller has opened a stream. `ask` begins an attempt; `None` if the followed controller
    /// is the first one, or none is known. While a controller restarts, its address is missing, so this is asked each
    /// time. This can be cancelled and called again.
    pub(super) async fn succeeded(&mut self, ask: impl Fn() -> Option<Attempt<T>>) -> T {
        loop {
            if self.attempt.is_none() {
                sleep_until(self.due).await;
                self.due = Instant::now() + self.interval;
                self.attempt = ask().map(|attempt| Box::pin(timeout(ATTEMPT_TIMEOUT, attempt)));
            }
            if let Some(attempt) = &mut self.attempt {
                let ended = attempt.await;
                self.attempt = None;
                if let Ok(Some(opened)) = ended {
                    return opened;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Attempts: the followed controller is the first one, it is refused, it gets no answer, it succeeds.
    #[tokio::test(start_paused = true)]
    async fn a_return_is_tried_at_its_interval_until_it_succeeds() {
        let start = Instant::now();
        let asked = Cell::new(0);
        let ask = || -> Option<Attempt<u64>> {
            asked.set(asked.get() + 1);
            match asked.get() {
                1 => None,
                2 => Some(Box::pin(std::future::ready(None))),
                3 => Some(Box::pin(std::future::pending())),
                number => Some(Box::pin(async move {
                    sleep(SECOND * 5).await;
                    Some(number)
                })),
            }
        };
        let mut returns = Return::new(SECOND * 100);
        // It is cancelled by every message of the followed stream.
        let opened = loop {
            tokio::select! {
                biased;
                opened = returns.succeeded(ask) => break opened,
                () = sleep(SECOND * 3) => {}
            }
        };
        assert_eq!((opened, start.elapsed().as_secs()), (4, 405));
    }
}
