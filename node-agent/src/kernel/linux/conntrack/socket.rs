//! Requests to connection tracking over a transport: a list, and many deletions in one send.

use std::collections::HashMap;
use std::io;

use netlink_blocking::message::{error_code, messages};
use netlink_blocking::{Channel, Error as SocketError, Outgoing, Received};
use netlink_packet_core::{DecodeError, NLM_F_DUMP_INTR};
use portolan_plan::{Family, Protocol};
use portolan_reconcile::Flow;
use thiserror::Error;

use super::codec::{Request, flow_of};

/// Deletions per send; all their replies fit into the smallest receive buffer that kernels allow.
const PER_SEND: usize = 64;

const ENOENT: i32 = 2;

/// A failed request to connection tracking.
#[derive(Debug, Error)]
pub(super) enum Error {
    /// The socket failed.
    #[error("netlink socket: {0}")]
    Socket(SocketError),
    /// The kernel refused.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    Kernel(i32),
}

impl From<SocketError> for Error {
    fn from(error: SocketError) -> Self {
        Self::Socket(error)
    }
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        Self::Socket(error.into())
    }
}

pub(super) struct Socket {
    channel: Channel,
}

impl Socket {
    pub(super) fn over(channel: Channel) -> Self {
        Self { channel }
    }

    /// Calls `each` with every flow of a protocol and family. Returns whether the list changed while it was read, so that
    /// some flows may be missing.
    pub(super) fn dump(
        &mut self,
        protocol: Protocol,
        family: Family,
        each: impl FnMut(Flow),
    ) -> Result<bool, Error> {
        let dumped = self.dump_once(protocol, family, each);
        // Prevents a late reply from being taken for one to the next request.
        self.channel.settle(dumped, |_| true)
    }

    fn dump_once(
        &mut self,
        protocol: Protocol,
        family: Family,
        mut each: impl FnMut(Flow),
    ) -> Result<bool, Error> {
        let sequence = self.channel.next_sequence();
        let mut bytes = Vec::new();
        Request::Dump(protocol, family).encode(sequence, false, &mut bytes);
        self.send(&bytes, 1, false)?;
        let mut interrupted = false;
        loop {
            let Received::Datagram(datagram) = self.channel.receive(true)? else {
                return Err(SocketError::AnswerLost.into());
            };
            for message in messages(datagram) {
                let message = message?;
                if message.header.sequence_number != sequence {
                    continue;
                }
                interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
                match error_code(&message) {
                    Some(0) => return Ok(interrupted),
                    Some(errno) => return Err(Error::Kernel(errno)),
                    // Old kernels list the flows of all protocols.
                    None => flow_of(&message)?
                        .into_iter()
                        .filter(|(of, _)| *of == protocol)
                        .for_each(|(_, flow)| each(flow)),
                }
            }
        }
    }

    /// Deletes flows of a protocol, many in one send, with a result for each. A flow that does not exist counts as
    /// deleted.
    pub(super) fn delete(
        &mut self,
        protocol: Protocol,
        flows: &[Flow],
    ) -> Result<Vec<Result<(), Error>>, Error> {
        let deleted = self.delete_all(protocol, flows);
        self.channel.settle(deleted, |_| true)
    }

    fn delete_all(
        &mut self,
        protocol: Protocol,
        flows: &[Flow],
    ) -> Result<Vec<Result<(), Error>>, Error> {
        let mut results = Vec::with_capacity(flows.len());
        for run in flows.chunks(PER_SEND) {
            let mut bytes = Vec::new();
            let mut sequences = Vec::with_capacity(run.len());
            for (index, flow) in run.iter().enumerate() {
                let sequence = self.channel.next_sequence();
                sequences.push(sequence);
                // The kernel processes messages in order: after the reply to the last one, all earlier ones without
                // an error have succeeded.
                let last = index.saturating_add(1) == run.len();
                Request::Delete(protocol, flow).encode(sequence, last, &mut bytes);
            }
            self.send(&bytes, run.len(), true)?;
            let fence = self.channel.sequence();
            let mut answers = HashMap::new();
            let lost = self.channel.collect_answers(fence, |message, errno| {
                answers.insert(message.header.sequence_number, errno);
            })?;
            results.extend(
                sequences
                    .iter()
                    .map(|sequence| match answers.get(sequence).copied() {
                        Some(0 | ENOENT) => Ok(()),
                        Some(errno) => Err(Error::Kernel(errno)),
                        None if lost => Err(SocketError::AnswerLost.into()),
                        None => Ok(()),
                    }),
            );
        }
        Ok(results)
    }

    fn send(&mut self, bytes: &[u8], messages: usize, writes: bool) -> Result<(), Error> {
        let outgoing = Outgoing {
            bytes,
            messages,
            writes,
        };
        Ok(self.channel.send(&outgoing)?)
    }
}
