//! Sends a transaction and collects the kernel's answers.
//!
//! The kernel executes a transaction within the send call, and its answers are in the receive queue when the call
//! returns. It reports each refused message, and then executes nothing. The last operation asks for an acknowledgement:
//! older kernels ignore that request in the end of a transaction.

use netlink_blocking::{Outgoing, Received};
use netlink_packet_core::NLM_F_ACK;

use crate::batch::Batch;
use crate::chunk::{self, Chunk};
use crate::errno::Errno;
use crate::error::Error;
use crate::message::{BATCH_BEGIN, BATCH_END, error_code, failed_offset, messages, put_border};
use crate::refused::Refused;
use crate::socket::Socket;

const EMSGSIZE: i32 = 90;
/// The place of the flags in a netlink header.
const FLAGS: usize = 6;
/// The place of the sequence number in a netlink header.
const SEQUENCE: usize = 8;

/// The answers to one attempt.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// The numbers of the refused chunks, with error numbers and places.
    pub(crate) refused: Vec<(usize, Errno, Option<usize>)>,
    /// Why the whole was refused.
    pub(crate) whole: Option<Errno>,
    /// Whether answers were lost.
    pub(crate) lost: bool,
    /// Whether the last operation was acknowledged.
    acknowledged: bool,
}

impl Answers {
    pub(crate) fn is_accepted(&self) -> bool {
        self.refused.is_empty() && self.whole.is_none()
    }
}

impl Socket {
    /// Executes a transaction: all of it or, after an error, nothing. On an error, the element of a refused operation is
    /// known from kernel 5.19 on; [`Socket::commit_without_refused`] finds it on all kernels.
    ///
    /// # Errors
    /// [`Error::Refused`] names each refused operation. [`Error::TooLarge`], [`Error::Socket`].
    pub fn commit(&mut self, batch: &Batch) -> Result<(), Error> {
        let mut refused = Refused {
            refusals: batch.unencodable().to_vec(),
            ..Refused::default()
        };
        if refused.refusals.is_empty() {
            let chunks = chunk::all(batch);
            let answers = self.attempt(batch, &chunks)?;
            if answers.is_accepted() {
                return Ok(());
            }
            refused.whole = answers.whole;
            refused.incomplete = answers.lost;
            refused.refusals = answers
                .refused
                .into_iter()
                .filter_map(|(number, errno, offset)| {
                    chunks.get(number)?.report(batch, errno, offset)
                })
                .collect();
        }
        Err(Error::Refused(refused))
    }

    /// Sends chunks as one transaction and returns the answers.
    pub(crate) fn attempt(&mut self, batch: &Batch, chunks: &[Chunk]) -> Result<Answers, Error> {
        if chunks.is_empty() {
            return Ok(Answers::default());
        }
        let attempted = self.attempt_once(batch, chunks);
        self.channel.settle(attempted, Error::is_of_socket)
    }

    fn attempt_once(&mut self, batch: &Batch, chunks: &[Chunk]) -> Result<Answers, Error> {
        self.skip_old_answers();
        let begin = self.channel.next_sequence();
        let mut bytes = Vec::with_capacity(batch.bytes.len().saturating_add(64));
        put_border(&mut bytes, BATCH_BEGIN, begin);
        let mut fence = begin;
        for (number, chunk) in chunks.iter().enumerate() {
            let start = bytes.len();
            chunk.put(batch, &mut bytes);
            fence = self.channel.next_sequence();
            let is_last = number.saturating_add(1) == chunks.len();
            stamp(bytes.get_mut(start..).unwrap_or_default(), fence, is_last);
        }
        let end = self.channel.next_sequence();
        put_border(&mut bytes, BATCH_END, end);
        self.channel
            .send(&Outgoing {
                bytes: &bytes,
                messages: chunks.len().saturating_add(2),
                writes: true,
            })
            .map_err(|error| match error.errno() {
                Some(EMSGSIZE) => Error::TooLarge { bytes: bytes.len() },
                _ => error.into(),
            })?;
        let answers = self.collect(begin, fence)?;
        // A transaction without any error was executed, but the kernel would also have said so.
        if answers.is_accepted() && !answers.acknowledged {
            return Err(netlink_blocking::Error::AnswerLost.into());
        }
        Ok(answers)
    }

    /// Collects what the kernel answered within the send call.
    fn collect(&mut self, begin: u32, fence: u32) -> Result<Answers, Error> {
        let mut answers = Answers::default();
        loop {
            let datagram = match self.channel.receive(false)? {
                Received::Datagram(datagram) => datagram,
                Received::Overrun => {
                    answers.lost = true;
                    continue;
                }
                Received::Nothing => break,
            };
            for message in messages(datagram) {
                let message = message?;
                let Some(errno) = error_code(&message) else {
                    continue;
                };
                let sequence = message.header.sequence_number;
                let place = usize::try_from(sequence.wrapping_sub(begin)).unwrap_or(usize::MAX);
                answers.acknowledged |= sequence == fence && errno == 0;
                match (place, errno) {
                    (_, 0) => {}
                    (0, errno) => answers.whole = Some(Errno(errno)),
                    (place, errno) => {
                        let offset = failed_offset(&message);
                        let number = place.saturating_sub(1);
                        answers.refused.push((number, Errno(errno), offset));
                    }
                }
            }
        }
        answers.refused.sort_by_key(|(number, ..)| *number);
        Ok(answers)
    }

    /// Discards answers to a request that was given up.
    fn skip_old_answers(&mut self) {
        while let Ok(Received::Datagram(_) | Received::Overrun) = self.channel.receive(false) {}
    }
}

/// Writes the sequence number of a message, and whether success is acknowledged.
fn stamp(message: &mut [u8], sequence: u32, acknowledge: bool) {
    if let Some(place) = message
        .get_mut(SEQUENCE..)
        .and_then(<[u8]>::first_chunk_mut)
    {
        *place = sequence.to_ne_bytes();
    }
    if let Some(place) = message.get_mut(FLAGS..).and_then(<[u8]>::first_chunk_mut) {
        let flags = u16::from_ne_bytes(*place);
        let wanted = if acknowledge { NLM_F_ACK } else { 0 };
        *place = (flags | wanted).to_ne_bytes();
    }
}
