//! Messages in flight to one agent, and how much of them its connection has not taken yet.
//!
//! Behind the queue there are buffers beyond our control: HTTP/2 alone keeps 400 kB for a peer that does not read. A
//! message is therefore produced only when few bytes of earlier ones wait, and a stalled agent costs no more than
//! that (I-9). The number of waiting bytes is derived from the bytes that its connection counts as written.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use portolan_proto::wire::plan_message::Message;
use portolan_proto::{CHUNK_BYTES, wire};
use prost::Message as _;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tonic::Status;

use super::session::End;
use crate::telemetry::metrics::Counters;

/// Maximum number of waiting bytes at which another message is produced.
const MAX_WAITING_BYTES: u64 = 2 * CHUNK_BYTES as u64;

/// Time for an agent to take the reason why its stream ends. An agent that reads nothing does not get it.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The queue of messages. It allocates 32 slots at once, so it holds pointers.
pub(super) type Queue = mpsc::Sender<Result<Box<wire::PlanMessage>, Status>>;

/// The number of bytes written to a connection.
#[derive(Debug, Default)]
pub(super) struct Written {
    bytes: AtomicU64,
    more: Notify,
}

impl Written {
    /// Adds bytes that the connection took.
    pub(super) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Release);
        self.more.notify_waiters();
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }
}

/// The sender of messages to one agent.
#[derive(Debug)]
pub(super) struct Outgoing {
    queue: Queue,
    written: Arc<Written>,
    /// The value of `written` once nothing waits.
    given: u64,
    counters: Arc<Counters>,
}

impl Outgoing {
    /// Messages go to the queue, and from there to the connection that counts the bytes written.
    pub(super) fn new(queue: Queue, written: Arc<Written>, counters: Arc<Counters>) -> Self {
        Self {
            given: written.bytes(),
            queue,
            written,
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
            () = self.room() => {}
            () = self.queue.closed() => return Err(End::Gone),
        }
        let message = wire::PlanMessage {
            message: Some(message),
        };
        self.given += u64::try_from(message.encoded_len()).unwrap_or(u64::MAX);
        self.counters.waits(self.waiting());
        let sent = self.queue.send(Ok(Box::new(message))).await;
        sent.map_err(|_| End::Gone)
    }

    /// Sends the agent the reason why its stream ends.
    pub(super) async fn end(&self, status: Status) {
        drop(timeout(END_TIMEOUT, self.queue.send(Err(status))).await);
    }

    /// The agent has answered all messages, so nothing waits. Resets the count: the connection also counts frames,
    /// which over the life of a stream would exceed the limit.
    pub(super) fn answered(&mut self) {
        self.given = self.written.bytes();
    }

    fn waiting(&self) -> u64 {
        self.given.saturating_sub(self.written.bytes())
    }

    async fn room(&self) {
        loop {
            let mut more = pin!(self.written.more.notified());
            // What is written from here on is noticed.
            more.as_mut().enable();
            if self.waiting() <= MAX_WAITING_BYTES {
                return;
            }
            more.await;
        }
    }
}

#[cfg(test)]
mod tests {
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
        assert!(outgoing.waiting() < 2 * MAX_WAITING_BYTES);
        assert!(timeout(second, outgoing.put(items(1))).await.is_err());
        // The agent has answered, so the count is reset.
        outgoing.answered();
        assert_eq!(outgoing.waiting(), 0);
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
