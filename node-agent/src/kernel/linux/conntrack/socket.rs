//! Speaks to connection tracking over a transport: a list, and many deletions in one send.

use std::collections::HashMap;
use std::io;

use netlink_packet_core::{DecodeError, NLM_F_DUMP_INTR};
use portolan_plan::Family;
use portolan_reconcile::Flow;
use thiserror::Error;

use super::codec::{Request, messages};
use super::transport::{ANSWER_LIMIT, Transport};

/// Larger than any datagram the kernel makes for a dump (32 KiB).
const RECEIVE_BYTES: usize = 64 * 1024;
/// Deletions in one send; all their answers fit into a receive buffer of any size that kernels allow.
const PER_SEND: usize = 64;

const ENOENT: i32 = 2;
const ENOBUFS: i32 = 105;

/// What can go wrong with connection tracking.
#[derive(Debug, Error)]
pub(super) enum Error {
    /// A system call on the socket failed.
    #[error("netlink socket: cannot {action}: {source}")]
    Io {
        action: &'static str,
        source: io::Error,
    },
    /// The kernel refused.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    Kernel(i32),
    /// The kernel did not answer in time.
    #[error("no answer from the kernel within {ANSWER_LIMIT:?}")]
    Silent,
    /// The receive buffer was full.
    #[error("the answer was lost (receive buffer full)")]
    AnswerLost,
    /// The kernel sent something that cannot be read.
    #[error("cannot read the kernel's answer: {0}")]
    Decode(#[from] DecodeError),
}

pub(super) struct Socket {
    transport: Box<dyn Transport>,
    buffer: Vec<u8>,
    sequence: u32,
}

enum Received<'a> {
    Datagram(&'a [u8]),
    Overrun,
    /// Nothing is waiting (only when not waiting for it).
    Nothing,
}

impl Socket {
    pub(super) fn over(transport: Box<dyn Transport>) -> Self {
        Self {
            transport,
            buffer: Vec::with_capacity(RECEIVE_BYTES),
            sequence: 0,
        }
    }

    /// Hands every UDP flow of a family to `each`; true if the list changed while it was read, so
    /// that some may be missing.
    pub(super) fn dump(
        &mut self,
        family: Family,
        mut each: impl FnMut(Flow),
    ) -> Result<bool, Error> {
        let sequence = self.next_sequence();
        let mut bytes = Vec::new();
        Request::Dump(family).encode(sequence, false, &mut bytes);
        self.send(&bytes)?;
        let mut interrupted = false;
        loop {
            let Received::Datagram(datagram) = self.receive(true)? else {
                return Err(Error::AnswerLost);
            };
            for message in messages(datagram) {
                let message = message?;
                if message.header.sequence_number != sequence {
                    continue;
                }
                interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
                match message.error_code() {
                    Some(0) => return Ok(interrupted),
                    Some(errno) => return Err(Error::Kernel(errno)),
                    None => message.flow()?.into_iter().for_each(&mut each),
                }
            }
        }
    }

    /// Deletes flows, many in one send, and answers each. One that is gone already is deleted.
    pub(super) fn delete(&mut self, flows: &[Flow]) -> Result<Vec<Result<(), Error>>, Error> {
        let mut results = Vec::with_capacity(flows.len());
        for run in flows.chunks(PER_SEND) {
            let mut bytes = Vec::new();
            let mut sequences = Vec::with_capacity(run.len());
            for (index, flow) in run.iter().enumerate() {
                let sequence = self.next_sequence();
                sequences.push(sequence);
                // The kernel takes messages in order: once it has answered the last, those before
                // it without an error have succeeded.
                let last = index.saturating_add(1) == run.len();
                Request::Delete(flow).encode(sequence, last, &mut bytes);
            }
            self.send(&bytes)?;
            let fence = self.sequence;
            let (answers, lost) = self.collect(fence)?;
            results.extend(
                sequences
                    .iter()
                    .map(|sequence| match answers.get(sequence).copied() {
                        Some(0 | ENOENT) => Ok(()),
                        Some(errno) => Err(Error::Kernel(errno)),
                        None if lost => Err(Error::AnswerLost),
                        None => Ok(()),
                    }),
            );
        }
        Ok(results)
    }

    /// Reads answers until the fence is answered; true if some were lost.
    fn collect(&mut self, fence: u32) -> Result<(HashMap<u32, i32>, bool), Error> {
        let mut answers = HashMap::new();
        let mut lost = false;
        loop {
            let datagram = match self.receive(!lost)? {
                Received::Datagram(datagram) => datagram,
                Received::Overrun => {
                    // What is still queued can be read; the rest is gone, the fence perhaps, too.
                    lost = true;
                    continue;
                }
                Received::Nothing => return Ok((answers, lost)),
            };
            for message in messages(datagram) {
                let message = message?;
                if let Some(errno) = message.error_code() {
                    answers.insert(message.header.sequence_number, errno);
                }
            }
            if answers.contains_key(&fence) {
                return Ok((answers, lost));
            }
        }
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    fn send(&mut self, datagram: &[u8]) -> Result<(), Error> {
        loop {
            match self.transport.send(datagram) {
                Ok(sent) if sent == datagram.len() => return Ok(()),
                Ok(_) => return Err(failed("send", io::ErrorKind::WriteZero.into())),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failed("send", e)),
            }
        }
    }

    /// Waits for one datagram, or only looks whether one is there.
    fn receive(&mut self, wait: bool) -> Result<Received<'_>, Error> {
        loop {
            self.buffer.clear();
            match self.transport.receive(&mut self.buffer, wait) {
                Ok(length) if length > self.buffer.len() => {
                    return Err(failed("receive", io::ErrorKind::FileTooLarge.into()));
                }
                Ok(_) => return Ok(Received::Datagram(&self.buffer)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.raw_os_error() == Some(ENOBUFS) => return Ok(Received::Overrun),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && wait => {
                    return Err(Error::Silent);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
                Err(e) => return Err(failed("receive", e)),
            }
        }
    }
}

pub(super) fn failed(action: &'static str, source: io::Error) -> Error {
    Error::Io { action, source }
}
