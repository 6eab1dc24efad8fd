//! The blocking socket: dumps and batches of writes.
//!
//! Invariant: a batch ends with one acknowledged message, the fence. The kernel handles messages
//! in order and answers within the send call, so once the fence is answered every request before
//! it without an error has succeeded.

mod execute;

use netlink_blocking::{Channel, Outgoing, Received};
use netlink_packet_core::{DecodeError, NLM_F_DUMP_INTR};
use netlink_sys::protocols::NETLINK_GENERIC;

use crate::destination::Destination;
use crate::error::Error;
use crate::key::ServiceKey;
use crate::message::{Envelope, RawMessage, error_code, messages};
use crate::reply::{Info, Reply};
use crate::request::Request;
use crate::service::Service;
use crate::timeouts::Timeouts;

/// The recommended number of requests per send; more gain little.
pub const DEFAULT_PER_SEND: usize = 64;

/// The maximum number of requests per send, so that their errors always fit into the receive buffer.
pub const MAX_PER_SEND: usize = 256;

const DUMP_ATTEMPTS: u32 = 5;
pub(crate) const ENOENT: i32 = 2;

/// A blocking socket to the IPVS of one network namespace.
pub struct Socket {
    pub(crate) channel: Channel,
    family_id: u16,
}

impl Socket {
    /// Opens a socket in the network namespace of the calling thread and looks up the family. If the socket fails
    /// later ([`Error::is_of_socket`]), the next call opens another one, in the namespace of the thread that makes
    /// that call.
    ///
    /// # Errors
    /// [`Error::NoIpvs`] if the kernel has no IPVS and cannot load it; [`Error::Kernel`] with `is_not_permitted`
    /// without `CAP_NET_ADMIN`; [`Error::Socket`] if the socket cannot be opened.
    pub fn open() -> Result<Self, Error> {
        Self::over(Channel::open(NETLINK_GENERIC)?)
    }

    pub(crate) fn over(channel: Channel) -> Result<Self, Error> {
        let mut socket = Self {
            channel,
            family_id: 0,
        };
        socket.family_id = socket.look_up_family()?;
        // The look-up needs no privilege; the first IPVS request reveals that the privilege is missing.
        socket.info()?;
        Ok(socket)
    }

    /// Version and size of the connection table.
    ///
    /// # Errors
    /// The same as [`Socket::services`].
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
            .ok_or_else(|| DecodeError::from("the answer contains no information").into())
    }

    /// Timeouts of connections.
    ///
    /// # Errors
    /// The same as [`Socket::services`].
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
            .ok_or_else(|| DecodeError::from("the answer contains no timeouts").into())
    }

    /// All virtual servers, including those of other programs.
    ///
    /// The list is read until two consecutive readings contain the same keys. The kernel continues a list by counting
    /// entries (`ip_vs_genl_dump_services`), on many kernels those of all network namespaces. If a virtual server is
    /// added or removed meanwhile in any of them, another one may appear twice or be missing, without any indication.
    /// Changes that never pause for the time of a reading can still disturb two of them in the same way.
    ///
    /// # Errors
    /// The kernel refused the request, the socket failed, or the list changed each time it was read.
    pub fn services(&mut self) -> Result<Vec<Service>, Error> {
        let mut before = self.services_once()?;
        for _ in 1..DUMP_ATTEMPTS {
            let again = self.services_once()?;
            let keys = again.iter().map(|service| service.key);
            if keys.eq(before.iter().map(|service| service.key)) {
                return Ok(again);
            }
            before = again;
        }
        Err(Error::Interrupted {
            request: Box::new(Request::GetServices),
            attempts: DUMP_ATTEMPTS,
        })
    }

    /// One reading of the kernel's list, which may be incomplete; sorted by key and without duplicates.
    fn services_once(&mut self) -> Result<Vec<Service>, Error> {
        let replies = self.ask(&Request::GetServices)?;
        let services = replies.into_iter().filter_map(|reply| match reply {
            Reply::Service(service) => Some(service),
            _ => None,
        });
        let mut services: Vec<_> = services.collect();
        services.sort_unstable_by_key(|service| service.key);
        services.dedup_by_key(|service| service.key);
        Ok(services)
    }

    /// One virtual server.
    ///
    /// # Errors
    /// `is_not_found` if it does not exist; otherwise the same as [`Socket::services`].
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
            .ok_or_else(|| DecodeError::from("the answer contains no virtual server").into())
    }

    /// The real servers of a virtual server. Empty if the virtual server does not exist, because the kernel does not
    /// distinguish these cases.
    ///
    /// # Errors
    /// The same as [`Socket::services`].
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

    /// Sends a request and collects the answers. Repeats it if a list changed meanwhile, a part of the answer was
    /// lost, or the family number changed.
    fn ask(&mut self, request: &Request) -> Result<Vec<Reply>, Error> {
        let mut looked_up = false;
        let mut attempts = 0_u32;
        loop {
            let asked = self.ask_once(request);
            let error = match self.channel.settle(asked, Error::is_of_socket) {
                Ok(Some(replies)) => return Ok(replies),
                Ok(None) => Error::Interrupted {
                    request: Box::new(request.clone()),
                    attempts: DUMP_ATTEMPTS,
                },
                Err(error @ Error::Socket(netlink_blocking::Error::AnswerLost)) => error,
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

    /// Sends a request once; `None` if the list changed while it was read.
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

/// Passes the messages of `sequence` to `each` up to the acknowledgement or the end of the dump, and returns its
/// error number.
pub(crate) fn collect(
    channel: &mut Channel,
    sequence: u32,
    mut each: impl FnMut(&RawMessage<'_>) -> Result<(), DecodeError>,
) -> Result<i32, Error> {
    loop {
        let Received::Datagram(datagram) = channel.receive(true)? else {
            return Err(Error::Socket(netlink_blocking::Error::AnswerLost));
        };
        for message in messages(datagram) {
            let message = message?;
            // Answers to an earlier, abandoned request are skipped.
            if message.header.sequence_number != sequence {
                continue;
            }
            each(&message)?;
            if let Some(code) = error_code(&message) {
                return Ok(code);
            }
        }
    }
}
