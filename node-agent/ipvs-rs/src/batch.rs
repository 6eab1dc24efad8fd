//! Which requests go into one send, and with which sequence numbers.
//!
//! Invariant: only the last message asks for an acknowledgement; it is the fence.

use netlink_packet_core::NLM_F_ACK;

use crate::channel::Channel;
use crate::error::Error;
use crate::message::Envelope;
use crate::request::Request;

/// A send is closed early when it has grown to this many bytes.
const MAX_SEND_BYTES: usize = 64 * 1024;

/// Room for one message: one that adds a real server takes 120 bytes.
const MESSAGE_BYTES: usize = 128;

/// What became of one request of a batch.
pub(crate) enum Slot {
    /// It is in the bytes, with this sequence number.
    Sent(u32),
    /// It is not, and this is its result.
    Refused(Error),
}

/// The bytes of one send and which request has which sequence number.
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) messages: usize,
    /// One for each request taken.
    pub(crate) slots: Vec<Slot>,
    pub(crate) taken: usize,
    /// Sequence number of the last message, which alone is acknowledged.
    pub(crate) fence: Option<u32>,
}

impl Batch {
    /// Takes up to `most` requests from the front of `requests`, at least one.
    pub(crate) fn build(
        requests: &[Request],
        most: usize,
        family_id: u16,
        channel: &mut Channel,
    ) -> Self {
        let mut batch = Self {
            bytes: Vec::with_capacity(requests.len().min(most).saturating_mul(MESSAGE_BYTES)),
            messages: 0,
            slots: Vec::with_capacity(requests.len().min(most)),
            taken: 0,
            fence: None,
        };
        let mut last_start = 0;
        for request in requests.iter().take(most) {
            if batch.bytes.len() >= MAX_SEND_BYTES {
                break;
            }
            let start = batch.bytes.len();
            let sequence = channel.next_sequence();
            let envelope = Envelope {
                family_id,
                sequence,
                acknowledge: false,
            };
            batch.taken = batch.taken.saturating_add(1);
            let boxed = || Box::new(request.clone());
            if !request.is_write() {
                batch
                    .slots
                    .push(Slot::Refused(Error::NotAWrite { request: boxed() }));
            } else if let Err(source) = request.encode(envelope, &mut batch.bytes) {
                batch.slots.push(Slot::Refused(Error::Encode {
                    request: boxed(),
                    source,
                }));
            } else {
                batch.slots.push(Slot::Sent(sequence));
                batch.messages = batch.messages.saturating_add(1);
                batch.fence = Some(sequence);
                last_start = start;
            }
        }
        request_acknowledgement(&mut batch.bytes, last_start);
        batch
    }
}

/// Sets `NLM_F_ACK` in the header of the message that starts at `start`.
fn request_acknowledgement(bytes: &mut [u8], start: usize) {
    let flags = bytes
        .get_mut(start..)
        .and_then(|message| message.get_mut(6..8));
    if let Some([low, high]) = flags {
        let value = u16::from_ne_bytes([*low, *high]) | NLM_F_ACK;
        [*low, *high] = value.to_ne_bytes();
    }
}
