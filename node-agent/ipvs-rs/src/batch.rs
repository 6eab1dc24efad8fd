//! Collects requests into one send and assigns sequence numbers.
//!
//! Invariant: only the last message requests an acknowledgement; it is the fence.

use netlink_packet_core::NLM_F_ACK;

use crate::error::Error;
use crate::message::Envelope;
use crate::request::Request;

/// A send is closed early when it reaches this size in bytes.
const MAX_SEND_BYTES: usize = 64 * 1024;

/// The capacity reserved per message, in bytes: adding a real server takes 120 bytes.
const MESSAGE_BYTES: usize = 128;

/// The bytes of one send. Its sequence numbers are consecutive, one per request taken.
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) messages: usize,
    pub(crate) taken: usize,
    /// The requests that were not encoded, by index, each with its error.
    pub(crate) refused: Vec<(usize, Error)>,
    /// The form for which it was encoded.
    form: Form,
    /// The index of the last message, the only one that is acknowledged.
    pub(crate) fence: Option<usize>,
}

/// Everything besides its requests on which the bytes of a send depend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    /// The number of the generic netlink family.
    pub(crate) family_id: u16,
    /// The sequence number used last before the send.
    pub(crate) sequence: u32,
}

impl Form {
    /// The form of the send that follows a send of `taken` requests.
    pub(crate) fn behind(self, taken: usize) -> Self {
        // Sequence numbers wrap.
        let taken = u32::try_from(taken).unwrap_or(u32::MAX);
        Self {
            sequence: self.sequence.wrapping_add(taken),
            ..self
        }
    }
}

impl Batch {
    /// Encodes the requests of as many of these items as fit, at least one.
    pub(crate) fn build<T>(items: &[T], request: impl Fn(&T) -> Request, form: Form) -> Self {
        let mut batch = Self {
            bytes: Vec::with_capacity(items.len().saturating_mul(MESSAGE_BYTES)),
            messages: 0,
            taken: 0,
            refused: Vec::new(),
            form,
            fence: None,
        };
        let mut last_start = 0;
        for (place, item) in items.iter().enumerate() {
            let start = batch.bytes.len();
            if start >= MAX_SEND_BYTES {
                break;
            }
            batch.taken = place.saturating_add(1);
            let envelope = Envelope {
                family_id: form.family_id,
                sequence: form.behind(batch.taken).sequence,
                acknowledge: false,
            };
            let request = request(item);
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

    /// Whether it was encoded for this form.
    pub(crate) fn is_of(&self, form: Form) -> bool {
        self.form == form
    }

    /// The sequence number of the request with this index.
    pub(crate) fn sequence_of(&self, place: usize) -> u32 {
        self.form.behind(place.saturating_add(1)).sequence
    }

    /// The index of the request with this sequence number; `None` if it belongs to another batch.
    pub(crate) fn place(&self, sequence: u32) -> Option<usize> {
        let first = self.form.behind(1).sequence;
        let place = usize::try_from(sequence.wrapping_sub(first)).ok()?;
        (place < self.taken).then_some(place)
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
