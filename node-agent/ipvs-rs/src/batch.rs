//! Which requests go into one send, and with which sequence numbers.
//!
//! Invariant: only the last message asks for an acknowledgement; it is the fence.

use netlink_packet_core::NLM_F_ACK;

use crate::error::Error;
use crate::message::Envelope;
use crate::request::Request;

/// A send is closed early when it has grown to this many bytes.
const MAX_SEND_BYTES: usize = 64 * 1024;

/// Room for one message: one that adds a real server takes 120 bytes.
const MESSAGE_BYTES: usize = 128;

/// The bytes of one send, and which request has which sequence number: they count up, one for each
/// request taken.
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) messages: usize,
    /// The place of the first request among all; other places count from it.
    pub(crate) from: usize,
    pub(crate) taken: usize,
    /// The requests that are not in the bytes, by their place, each with its result.
    pub(crate) refused: Vec<(usize, Error)>,
    /// Sequence number of the first request.
    first: u32,
    /// Place of the last message, which alone is acknowledged.
    pub(crate) fence: Option<usize>,
}

impl Batch {
    /// Takes up to `most` requests, at least one, from the place `from` on. `request` gives the one of a
    /// place among all. Their sequence numbers follow `sequence`.
    pub(crate) fn build(
        request: impl Fn(usize) -> Request,
        from: usize,
        most: usize,
        family_id: u16,
        sequence: u32,
    ) -> Self {
        let first = sequence.wrapping_add(1);
        let mut batch = Self {
            from,
            bytes: Vec::with_capacity(most.saturating_mul(MESSAGE_BYTES)),
            messages: 0,
            taken: 0,
            refused: Vec::new(),
            first,
            fence: None,
        };
        let mut last_start = 0;
        while batch.taken < most && batch.bytes.len() < MAX_SEND_BYTES {
            let start = batch.bytes.len();
            let place = batch.taken;
            batch.taken = place.saturating_add(1);
            let envelope = Envelope {
                family_id,
                sequence: first.wrapping_add(number(place)),
                acknowledge: false,
            };
            let request = request(from.saturating_add(place));
            if !request.is_write() {
                let request = Box::new(request);
                batch.refused.push((place, Error::NotAWrite { request }));
            } else if let Err(source) = request.encode(envelope, &mut batch.bytes) {
                let request = Box::new(request);
                batch
                    .refused
                    .push((place, Error::Encode { request, source }));
            } else {
                batch.messages = batch.messages.saturating_add(1);
                batch.fence = Some(place);
                last_start = start;
            }
        }
        request_acknowledgement(&mut batch.bytes, last_start);
        batch
    }

    /// The sequence number of its last request.
    pub(crate) fn last_sequence(&self) -> u32 {
        let rest = self.taken.saturating_sub(1);
        self.first.wrapping_add(number(rest))
    }

    /// The place of the request with this sequence number; `None` for those of other batches.
    pub(crate) fn place(&self, sequence: u32) -> Option<usize> {
        let place = usize::try_from(sequence.wrapping_sub(self.first)).ok()?;
        (place < self.taken).then_some(place)
    }
}

/// A place as a number; there are at most [`MAX_PER_SEND`](crate::MAX_PER_SEND) in a batch.
fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
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
