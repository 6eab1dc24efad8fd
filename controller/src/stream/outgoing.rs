//! Messages in flight to one agent, and how much of them its connection has not taken yet.
//!
//! Behind the queue there are buffers beyond our control: HTTP/2 alone keeps 400 kB for a peer that does not read. A
//! message is therefore produced only when few bytes of earlier ones wait, and a stalled agent costs no more than
//! that (I-9).

use std::sync::Arc;
use std::time::Duration;

use portolan_proto::wire;
use portolan_proto::wire::plan_message::Message;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Status;

use super::session::End;
use super::written::{Waiting, Written};
use crate::telemetry::metrics::Counters;

/// Time for an agent to take the reason why its stream ends. An agent that reads nothing does not get it.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The queue of messages. It allocates 32 slots at once, so it holds pointers.
pub(super) type Queue = mpsc::Sender<Result<Box<wire::PlanMessage>, Status>>;

/// The sender of messages to one agent.
#[derive(Debug)]
pub(super) struct Outgoing {
    queue: Queue,
    waiting: Waiting,
    counters: Arc<Counters>,
}

impl Outgoing {
    /// Messages go to the queue, and from there to the connection that counts the bytes written.
    pub(super) fn new(queue: Queue, written: Arc<Written>, counters: Arc<Counters>) -> Self {
        Self {
            queue,
            waiting: Waiting::new(written),
            counters,
        }
    }

    /// The queue of messages.
    pub(super) fn queue(&self) -> Queue {
        self.queue.clone()
    }

    /// Waits until the agent is gone.
    pub(super) async fn closed(&self) {
        self.queue.closed().await;
    }

    /// Sends a message once few bytes wait.
    pub(super) async fn put(&mut self, message: Message) -> Result<(), End> {
        tokio::select! {
            () = self.waiting.room() => {}
            () = self.queue.closed() => return Err(End::Gone),
        }
        let message = wire::PlanMessage {
            message: Some(message),
        };
        let bytes = u64::try_from(message.encoded_len()).unwrap_or(u64::MAX);
        self.waiting.add(bytes);
        self.counters.waits(self.waiting.bytes());
        let sent = self.queue.send(Ok(Box::new(message))).await;
        sent.map_err(|_| End::Gone)
    }

    /// Sends the agent the reason why its stream ends.
    pub(super) async fn end(&self, status: Status) {
        drop(timeout(END_TIMEOUT, self.queue.send(Err(status))).await);
    }

    /// The agent has answered all messages, so nothing waits.
    pub(super) fn answered(&mut self) {
        self.waiting.reset();
    }
}

#[cfg(test)]
mod tests {
    use portolan_proto::CHUNK_BYTES;

    use super::super::written::MAX_WAITING_BYTES;
    use super::*;

    fn items(bytes: usize) -> Message {
        let items = vec![vec![0; bytes].into()];
        Message::Items(wire::Items { items })
    }

    /// I-9.
    #[tokio::test(start_paused = true)]
    async fn no_more_messages_are_produced_than_a_connection_takes() {
        let (queue, mut messages) = mpsc::channel(100);
        let (written, counters) = (Arc::<Written>::default(), Arc::<Counters>::default());
        written.add(50);
        let mut outgoing = Outgoing::new(queue, written.clone(), counters);
        let second = Duration::from_secs(1);
        assert!(outgoing.put(items(CHUNK_BYTES)).await.is_ok());
        assert!(outgoing.put(items(CHUNK_BYTES)).await.is_ok());
        let next = timeout(second, outgoing.put(items(1000))).await;
        assert!(next.is_err(), "more than 32 kB wait");
        written.add(500);
        assert!(outgoing.put(items(1000)).await.is_ok());
        assert!(outgoing.waiting.bytes() < 2 * MAX_WAITING_BYTES);
        assert!(timeout(second, outgoing.put(items(1))).await.is_err());
        // The agent has answered, so the count is reset.
        outgoing.answered();
        assert_eq!(outgoing.waiting.bytes(), 0);
        assert!(outgoing.put(items(1)).await.is_ok());
        for _ in 0..4 {
            assert!(messages.try_recv().is_ok());
        }
        assert!(messages.try_recv().is_err());
        assert!(outgoing.put(items(CHUNK_BYTES)).await.is_ok());
        drop(messages);
        assert!(matches!(outgoing.put(items(1)).await, Err(End::Gone)));
    }
}
