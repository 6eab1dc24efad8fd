//! The messages of an agent after its Hello. Newer tokens go to the admission of the stream, whenever they come. All
//! others are answers to what the controller sent.

use std::time::Duration;

use portolan_proto::wire;
use portolan_proto::wire::agent_message::Message as Answer;
use tokio::time::{Instant, sleep_until};
use tonic::{Status, Streaming};

use crate::auth::{Admission, Token};
use crate::bucket::{Bucket, Rate};

/// Statuses and renewals of one agent that are read without a delay. An agent sends changes during a delay together.
const REPORTS: Rate = Rate::new(20, 50);
/// No delay is as long, because nothing is read before its end.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// The messages of one agent.
pub(super) struct Answers<'a> {
    messages: Streaming<wire::AgentMessage>,
    admission: &'a Admission,
    reports: Reports,
}

impl<'a> Answers<'a> {
    pub(super) fn new(messages: Streaming<wire::AgentMessage>, admission: &'a Admission) -> Self {
        Self {
            messages,
            admission,
            reports: Reports::default(),
        }
    }

    /// The next answer; `None` at the end of the stream. It may be cancelled.
    ///
    /// # Errors
    /// As [`Streaming::message`].
    pub(super) async fn message(&mut self) -> Result<Option<wire::AgentMessage>, Status> {
        loop {
            self.reports.wait().await;
            let message = self.messages.message().await?;
            let answer = message.as_ref().and_then(|found| found.message.as_ref());
            if let Some(Answer::Status(_) | Answer::Renewal(_)) = answer {
                self.reports.received();
            }
            match message {
                Some(wire::AgentMessage {
                    message: Some(Answer::Renewal(renewal)),
                }) => self.renew(renewal),
                other => return Ok(other),
            }
        }
    }

    /// A text that cannot be a token is ignored: the present token counts, as after a newer one that is rejected.
    fn renew(&self, renewal: wire::Renewal) {
        if let Some(token) = Token::of_message(renewal.token) {
            self.admission.renew(token);
        }
    }
}

/// The rate of messages that an agent sends without being asked. Only its own stream is delayed.
#[derive(Debug)]
struct Reports {
    bucket: Bucket,
    /// When the next message may be read.
    next: Option<Instant>,
}

impl Default for Reports {
    fn default() -> Self {
        Self {
            bucket: REPORTS.bucket(MAX_DELAY),
            next: None,
        }
    }
}

impl Reports {
    /// Waits until the next message may be read. It may be cancelled.
    async fn wait(&mut self) {
        if let Some(next) = self.next {
            sleep_until(next).await;
            self.next = None;
        }
    }

    fn received(&mut self) {
        let now = Instant::now();
        let delay = self.bucket.take(now.into_std()).unwrap_or(MAX_DELAY);
        self.next = (!delay.is_zero()).then(|| now + delay);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-232: an agent cannot use up the controller's processors with statuses.
    #[tokio::test(start_paused = true)]
    async fn reports_of_an_agent_are_read_at_a_limited_rate() {
        let mut reports = Reports::default();
        let start = Instant::now();
        let mut read = async |count: u32| {
            for _ in 0..count {
                reports.wait().await;
                reports.received();
            }
            start.elapsed()
        };
        assert_eq!(read(50).await, Duration::ZERO, "a burst of an honest agent");
        let before = read(1).await;
        let took = read(200).await - before;
        assert!(took >= Duration::from_secs(9), "{took:?}");
        assert!(took <= Duration::from_secs(11), "{took:?}");
    }
}
