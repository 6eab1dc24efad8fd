//! Parts of the messages of a batch, for further attempts without what was refused.
//!
//! The kernel stops a message at its first refused element. To find the others in few attempts, the rest of the message
//! is sent in two halves: the longest part that is refused has at most half as many elements after each attempt.

use std::ops::Range;

use netlink_blocking::message::messages;
use netlink_packet_core::DecodeError;

use crate::attribute::attributes;
use crate::batch::{Batch, Message, Refusal, close};
use crate::errno::Errno;
use crate::operation::Operation;

/// A part of a message of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// The number of the message in the batch.
    message: usize,
    /// Which of its elements; `None` is the whole message.
    elements: Option<Range<usize>>,
}

/// What is known after a chunk was refused.
pub(crate) struct Finding {
    /// What was refused for certain.
    pub(crate) refusal: Option<Refusal>,
    /// The parts that are to be sent again.
    pub(crate) again: Vec<Chunk>,
}

/// The whole batch.
pub(crate) fn all(batch: &Batch) -> Vec<Chunk> {
    (0..batch.messages.len())
        .map(|message| Chunk {
            message,
            elements: None,
        })
        .collect()
}

impl Chunk {
    /// Appends the chunk as a message to `buffer`.
    pub(crate) fn put(&self, batch: &Batch, buffer: &mut Vec<u8>) {
        let Some((message, bytes)) = self.of(batch) else {
            return;
        };
        let (Some(range), Some((list, _))) = (&self.elements, message.list) else {
            buffer.extend_from_slice(bytes);
            return;
        };
        let bounds = bounds(bytes, list);
        let from = bounds.get(range.start).copied().unwrap_or(bytes.len());
        let to = bounds.get(range.end).copied().unwrap_or(bytes.len());
        let start = buffer.len();
        buffer.extend_from_slice(bytes.get(..list.saturating_add(4)).unwrap_or_default());
        buffer.extend_from_slice(bytes.get(from..to).unwrap_or_default());
        // It is shorter than the message from which it comes, so it always fits.
        if close(buffer, start, list).is_err() {
            buffer.truncate(start);
        }
    }

    /// What an answer says about this chunk: an error number, and a place in the message.
    pub(crate) fn refused(&self, batch: &Batch, errno: Errno, offset: Option<usize>) -> Finding {
        let nothing = Finding {
            refusal: None,
            again: Vec::new(),
        };
        let Some((message, bytes)) = self.of(batch) else {
            return nothing;
        };
        let Some((list, first)) = message.list else {
            return Finding {
                refusal: refusal(message, None, errno, bytes),
                ..nothing
            };
        };
        if offset.is_some_and(|offset| offset <= list) {
            // The table or the set is wrong, and with it every element.
            return Finding {
                refusal: refusal(message, None, errno, bytes),
                ..nothing
            };
        }
        let bounds = bounds(bytes, list);
        let whole = 0..bounds.len().saturating_sub(1);
        let range = self.elements.clone().unwrap_or(whole);
        // Offsets are in the message that was sent, which lacks the elements before the range.
        let skipped = skipped(&bounds, &range);
        let place = offset
            .and_then(|offset| offset.checked_add(skipped))
            .and_then(|offset| {
                range.clone().find(|element| {
                    let start = bounds.get(*element);
                    let end = bounds.get(element.saturating_add(1));
                    start.is_some_and(|start| *start <= offset)
                        && end.is_some_and(|end| offset < *end)
                })
            })
            .or_else(|| (range.len() == 1).then_some(range.start));
        let Some(place) = place else {
            return Finding {
                again: self.parts([halves(range)]),
                ..nothing
            };
        };
        let after = place.saturating_add(1);
        let mut single = Vec::new();
        for part in self.parts([[place..after, 0..0]]) {
            part.put(batch, &mut single);
        }
        Finding {
            refusal: refusal(message, Some(first.saturating_add(place)), errno, &single),
            again: self.parts([[range.start..place, 0..0], halves(after..range.end)]),
        }
    }

    /// A refusal of this chunk, with its element if that is known.
    pub(crate) fn report(
        &self,
        batch: &Batch,
        errno: Errno,
        offset: Option<usize>,
    ) -> Option<Refusal> {
        self.refused(batch, errno, offset).refusal.or_else(|| {
            let (message, bytes) = self.of(batch)?;
            refusal(message, None, errno, bytes)
        })
    }

    /// The message of the batch to which it belongs, with its bytes.
    fn of<'a>(&self, batch: &'a Batch) -> Option<(&'a Message, &'a [u8])> {
        let message = batch.messages.get(self.message)?;
        let next = batch.messages.get(self.message.saturating_add(1));
        let end = next.map_or(batch.bytes.len(), |next| next.start);
        Some((message, batch.bytes.get(message.start..end)?))
    }

    fn parts<const N: usize>(&self, ranges: [[Range<usize>; 2]; N]) -> Vec<Self> {
        ranges
            .into_iter()
            .flatten()
            .filter(|range| !range.is_empty())
            .map(|range| Self {
                message: self.message,
                elements: Some(range),
            })
            .collect()
    }
}

fn halves(range: Range<usize>) -> [Range<usize>; 2] {
    let middle = range.start.midpoint(range.end);
    [range.start..middle, middle..range.end]
}

/// How many bytes of elements precede a range.
fn skipped(bounds: &[usize], range: &Range<usize>) -> usize {
    let first = bounds.first().copied().unwrap_or_default();
    let start = bounds.get(range.start).copied().unwrap_or(first);
    start.saturating_sub(first)
}

/// Where the elements of a list begin in a message, and where the last one ends.
fn bounds(message: &[u8], list: usize) -> Vec<usize> {
    let start = list.saturating_add(4);
    let mut place = start;
    let mut bounds = vec![place];
    for item in attributes(message.get(start..).unwrap_or_default()).map_while(Result::ok) {
        place = place.saturating_add(usize::from(item.length()).next_multiple_of(4));
        bounds.push(place);
    }
    bounds
}

fn refusal(
    message: &Message,
    element: Option<usize>,
    errno: Errno,
    bytes: &[u8],
) -> Option<Refusal> {
    let what = decode(bytes).ok()?;
    Some(Refusal {
        operation: message.operation,
        element,
        errno,
        what: Box::new(what),
    })
}

fn decode(bytes: &[u8]) -> Result<Operation, DecodeError> {
    let message = messages(bytes).next().ok_or("no message")??;
    Operation::decode(&message)
}
