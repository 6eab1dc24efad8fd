//! The send queue of a stream: the session waits for room, and the connection counts what it has written.

use std::sync::Arc;

use shuttle::future::block_on;
use shuttle::thread;

use crate::written::{MAX_WAITING_BYTES, Waiting, Written};

/// Number of messages.
const MESSAGES: u64 = 4;
/// Size of each of them: the next one has to wait.
const MESSAGE_BYTES: u64 = MAX_WAITING_BYTES + 1;

/// A session never sleeps while there is room, and there is never less than it was promised.
pub fn a_session_never_sleeps_with_room() {
    let written: Arc<Written> = Arc::default();
    // Before the connection writes anything.
    let mut waiting = Waiting::new(written.clone());
    let writes = thread::spawn(move || {
        for _ in 0..MESSAGES {
            written.add(1);
            written.add(MESSAGE_BYTES - 1);
        }
    });
    for _ in 0..MESSAGES {
        block_on(waiting.room());
        assert!(waiting.bytes() <= MAX_WAITING_BYTES);
        waiting.add(MESSAGE_BYTES);
    }
    writes.join().unwrap();
    assert_eq!(waiting.bytes(), 0);
}
