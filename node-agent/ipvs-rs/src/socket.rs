//! The blocking socket, and what it reads. Writes are in `writes`.

use std::sync::Arc;

use netlink_packet_core::{DecodeError, NLM_F_DUMP_INTR};
use netlink_sys::protocols::NETLINK_GENERIC;

use crate::channel::{Channel, Outgoing, Received};
use crate::destination::Destination;
use crate::error::Error;
use crate::key::ServiceKey;
use crate::message::{Envelope, RawMessage, error_code, messages};
use crate::reply::{Info, Reply};
use crate::request::Request;
use crate::service::Service;
use crate::timeouts::Timeouts;

/// A good number of requests for one send: more gain little.
pub const DEFAULT_PER_SEND: usize = 64;

/// The most requests in one send, so that their errors always fit into the receive buffer.
pub const MAX_PER_SEND: usize = 256;

const DUMP_ATTEMPTS: u32 = 5;
pub(crate) const ENOENT: i32 = 2;

/// A blocking socket to the IPVS of one network namespace.
pub struct Socket {
    pub(crate) channel: Channel,
    pub(crate) family_id: u16,
}

impl Socket {
    /// Opens a socket in the network namespace of the calling thread and looks up the family. Should
    /// it fail one day ([`Error::is_of_socket`]), the next call opens another, in the namespace of
    /// the thread that calls then.
    ///
    /// # Errors
    /// [`Error::NoIpvs`] if the kernel has no IPVS and cannot load it; [`Error::Kernel`] with
    /// `is_not_permitted` without `CAP_NET_ADMIN`; [`Error::Io`] if there is no socket to be had.
    pub fn open() -> Result<Self, Error> {
        Self::over(Channel::open(NETLINK_GENERIC)?)
    }

    pub(crate) fn over(channel: Channel) -> Result<Self, Error> {
        let mut socket = Self {
            channel,
            family_id: 0,
        };
        socket.family_id = socket.look_up_family()?;
        // The look-up is open to everybody; the first real question shows the missing privilege.
        socket.info()?;
        Ok(socket)
    }

    /// Version and size of the connection table.
    ///
    /// # Errors
    /// As [`Socket::services`].
    pub fn info(&mut self) -> Result<Info, Error> {
        let replies = self.ask(&Request::GetInfo)?;
        replies
            .into_iter()
            .find_map(|reply| {
                if let Reply::Info(info) = reply {
                    Some(info)
                } else {
                    None
                }
            })
            .ok_or_else(|| unreadable("no information in the answer".into()))
    }

    /// Timeouts of connections.
    ///
    /// # Errors
    /// As [`Socket::services`].
    pub fn timeouts(&mut self) -> Result<Timeouts, Error> {
        let replies = self.ask(&Request::GetTimeouts)?;
        replies
            .into_iter()
            .find_map(|reply| {
                if let Reply::Timeouts(timeouts) = reply {
                    Some(timeouts)
                } else {
                    None
                }
            })
            .ok_or_else(|| unreadable("no timeouts in the answer".into()))
    }

    /// All virtual servers, those of others included.
    ///
    /// # Errors
    /// The kernel refused, the socket failed, or the list changed each time it was read.
    pub fn services(&mut self) -> Result<Vec<Service>, Error> {
        let replies = self.ask(&Request::GetServices)?;
        Ok(replies
            .into_iter()
            .filter_map(|reply| {
                if let Reply::Service(s) = reply {
                    Some(s)
                } else {
                    None
                }
            })
            .collect())
    }

    /// One virtual server.
    ///
    /// # Errors
    /// `is_not_found` if there is none; else as [`Socket::services`].
    pub fn service(&mut self, key: &ServiceKey) -> Result<Service, Error> {
        let replies = self.ask(&Request::GetService(*key))?;
        replies
            .into_iter()
            .find_map(|reply| {
                if let Reply::Service(s) = reply {
                    Some(s)
                } else {
                    None
                }
            })
            .ok_or_else(|| unreadable("no virtual server in the answer".into()))
    }

    /// The real servers of a virtual server. A virtual server that is not there has none: the
    /// kernel does not tell the difference.
    ///
    /// # Errors
    /// As [`Socket::services`].
    pub fn destinations(&mut self, key: &ServiceKey) -> Result<Vec<Destination>, Error> {
        let replies = self.ask(&Request::GetDestinations(*key))?;
        Ok(replies
            .into_iter()
            .filter_map(|reply| {
                if let Reply::Destination(d) = reply {
                    Some(d)
                } else {
                    None
                }
            })
            .collect())
    }

    /// Asks and collects the answers; repeats when a list changed meanwhile, a part of it was lost,
    /// or the family moved.
    fn ask(&mut self, request: &Request) -> Result<Vec<Reply>, Error> {
        let mut looked_up = false;
        let mut attempts = 0_u32;
        loop {
            let asked = self.ask_once(request);
            let error = match self.channel.settle(asked) {
                Ok(Some(replies)) => return Ok(replies),
                Ok(None) => Error::Interrupted {
                    request: Box::new(request.clone()),
                    attempts: DUMP_ATTEMPTS,
                },
                Err(error @ Error::AnswerLost) => error,
                Err(error) if error.errno() == Some(ENOENT) && !looked_up => {
                    looked_up = true;
                    self.family_id = self.look_up_family()?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            attempts = attempts.saturating_add(1);
            if attempts >= DUMP_ATTEMPTS {
                return Err(error);
            }
        }
    }

    /// `None` if the list changed while it was read.
    fn ask_once(&mut self, request: &Request) -> Result<Option<Vec<Reply>>, Error> {
        let sequence = self.channel.next_sequence();
        let envelope = Envelope {
            family_id: self.family_id,
            sequence,
            acknowledge: true,
        };
        let mut bytes = Vec::new();
        request
            .encode(envelope, &mut bytes)
            .map_err(|source| Error::Encode {
                request: Box::new(request.clone()),
                source,
            })?;
        self.channel.send(&Outgoing {
            bytes: &bytes,
            messages: 1,
            writes: false,
        })?;
        let mut replies = Vec::new();
        let mut interrupted = false;
        let end = collect(&mut self.channel, sequence, |message| {
            interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
            if error_code(message).is_none() {
                replies.push(Reply::decode(message)?);
            }
            Ok(())
        })?;
        match end {
            0 if interrupted => Ok(None),
            0 => Ok(Some(replies)),
            errno => Err(Error::Kernel {
                errno,
                request: Box::new(request.clone()),
            }),
        }
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket")
            .field("family_id", &self.family_id)
            .finish_non_exhaustive()
    }
}

/// Hands the messages of `sequence` to `each` up to the acknowledgement or the end of the dump,
/// whose error number is returned.
pub(crate) fn collect(
    channel: &mut Channel,
    sequence: u32,
    mut each: impl FnMut(&RawMessage<'_>) -> Result<(), DecodeError>,
) -> Result<i32, Error> {
    loop {
        let Received::Datagram(datagram) = channel.receive(true)? else {
            return Err(Error::AnswerLost);
        };
        for message in messages(datagram) {
            let message = message.map_err(unreadable)?;
            // Answers to an earlier request that was given up are skipped.
            if message.header.sequence_number != sequence {
                continue;
            }
            each(&message).map_err(unreadable)?;
            if let Some(code) = error_code(&message) {
                return Ok(code);
            }
        }
    }
}

pub(crate) fn unreadable(error: DecodeError) -> Error {
    Error::Decode(Arc::new(error))
}
