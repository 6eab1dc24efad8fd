//! How much of the messages to one agent its connection has not taken yet, derived from the bytes that the connection
//! counts as written.

use std::pin::pin;
use std::sync::Arc;

use portolan_proto::CHUNK_BYTES;

use crate::sync::{AtomicU64, Notify, Ordering};

/// Maximum number of waiting bytes at which another message is produced.
pub(super) const MAX_WAITING_BYTES: u64 = 2 * CHUNK_BYTES as u64;

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

/// The bytes that were given to a connection and that it has not taken.
#[derive(Debug)]
pub(super) struct Waiting {
    written: Arc<Written>,
    /// The value of `written` once nothing waits.
    given: u64,
}

impl Waiting {
    /// Nothing waits for this connection yet.
    pub(super) fn new(written: Arc<Written>) -> Self {
        Self {
            given: written.bytes(),
            written,
        }
    }

    /// Adds a message of this size.
    pub(super) fn add(&mut self, bytes: u64) {
        self.given = self.given.saturating_add(bytes);
    }

    /// Nothing waits any more. The connection also counts frames, which over the life of a stream would exceed the
    /// limit.
    pub(super) fn reset(&mut self) {
        self.given = self.written.bytes();
    }

    /// The number of waiting bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.given.saturating_sub(self.written.bytes())
    }

    /// Waits until another message may be produced.
    pub(super) async fn room(&self) {
        loop {
            let mut more = pin!(self.written.more.notified());
            // What is written from here on is noticed.
            more.as_mut().enable();
            if self.bytes() <= MAX_WAITING_BYTES {
                return;
            }
            more.await;
        }
    }
}
