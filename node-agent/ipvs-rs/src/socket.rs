//! The blocking socket: dumps and batches of writes.
//!
//! Invariant: a batch ends with one acknowledged message, the fence. The kernel handles messages
//! in order and answers within the send call, so once the fence is answered every request before
//! it without an error has succeeded.

use netlink_blocking::{Channel, Outgoing, Received};
use netlink_packet_core::{DecodeError, NLM_F_DUMP_INTR};
use netlink_sys::protocols::NETLINK_GENERIC;

use crate::ahead::write_ahead;
use crate::batch::{Batch, Form};
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

    /// Executes writes in order, up to `per_send` (1 to [`MAX_PER_SEND`]) per send, and returns one result for each.
    /// A failed write does not stop the others.
    pub fn execute(&mut self, requests: &[Request], per_send: usize) -> Vec<Result<(), Error>> {
        let failed = self.execute_each(requests, Request::clone, per_send);
        let mut results: Vec<_> = requests.iter().map(|_| Ok(())).collect();
        for (place, error) in failed {
            if let Some(result) = results.get_mut(place) {
                *result = Err(error);
            }
        }
        results
    }

    /// The same as [`Socket::execute`] for many writes that need not exist in memory at once: `request` creates the
    /// request of an item when it is encoded, and again if it fails. Returns the failures by index, in order.
    ///
    /// If there are many, another thread encodes the next sends while the kernel works on one.
    pub fn execute_each<T: Sync>(
        &mut self,
        items: &[T],
        request: impl Fn(&T) -> Request + Sync,
        per_send: usize,
    ) -> Vec<(usize, Error)> {
        let per_send = per_send.clamp(1, MAX_PER_SEND);
        let mut failed = Vec::new();
        write_ahead(items, &request, per_send, self.form(), |(done, batch)| {
            let rest = items.get(done..).unwrap_or_default();
            let (items, _) = rest.split_at(batch.taken.min(rest.len()));
            let outcome = self.execute_batch(batch, items, &request).into_iter();
            failed.extend(outcome.map(|(place, error)| (done.saturating_add(place), error)));
        });
        failed
    }

    /// The form for which the next send must be encoded.
    fn form(&self) -> Form {
        Form {
            family_id: self.family_id,
            sequence: self.channel.sequence(),
        }
    }

    fn execute_batch<T>(
        &mut self,
        mut batch: Batch,
        items: &[T],
        request: impl Fn(&T) -> Request,
    ) -> Vec<(usize, Error)> {
        // Another request was sent after it was encoded, or the family number changed.
        if !batch.is_of(self.form()) {
            batch = Batch::build(items, &request, self.form());
        }
        let mut failed = self.send_batch(&mut batch, items, &request);
        if all_missing(&failed, batch.taken) && self.family_moved(&mut failed) {
            batch = Batch::build(items, &request, self.form());
            failed = self.send_batch(&mut batch, items, &request);
        }
        failed
    }

    /// Looks up the family again, because every request failed as if the family were gone. Returns whether its number
    /// changed. If there is no IPVS, all requests get that error.
    fn family_moved(&mut self, outcome: &mut [(usize, Error)]) -> bool {
        match self.look_up_family() {
            Ok(id) if id != self.family_id => {
                self.family_id = id;
                true
            }
            Ok(_) => false,
            Err(error) => {
                for (_, of_request) in outcome {
                    *of_request = error.clone();
                }
                false
            }
        }
    }

    /// Sends a batch and returns the failures by index, in order.
    fn send_batch<T>(
        &mut self,
        batch: &mut Batch,
        items: &[T],
        request: impl Fn(&T) -> Request,
    ) -> Vec<(usize, Error)> {
        let after = self.form().behind(batch.taken);
        self.channel.took_up_to(after.sequence);
        let Some(fence) = batch.fence else {
            return std::mem::take(&mut batch.refused);
        };
        let mut answers = vec![None; batch.taken];
        let exchanged = self.exchange(batch, fence, &mut answers);
        let failure = self.channel.settle(exchanged, Error::is_of_socket).err();
        let mut refused = std::mem::take(&mut batch.refused).into_iter().peekable();
        let mut failed = Vec::new();
        for (place, (item, answer)) in items.iter().zip(answers).enumerate() {
            if let Some(refused) = refused.next_if(|(at, _)| *at == place) {
                failed.push(refused);
                continue;
            }
            let error = match (answer, &failure) {
                (Some(0), _) | (None, None) => continue,
                (Some(errno), _) => Error::Kernel {
                    errno,
                    request: Box::new(request(item)),
                },
                (None, Some(failure)) => failure.clone(),
            };
            failed.push((place, error));
        }
        failed
    }

    /// Sends a batch and collects answers by request index, until the fence is answered.
    fn exchange(
        &mut self,
        batch: &Batch,
        fence: usize,
        answers: &mut [Option<i32>],
    ) -> Result<(), Error> {
        self.channel.send(&Outgoing {
            bytes: &batch.bytes,
            messages: batch.messages,
            writes: true,
        })?;
        let mut lost = false;
        loop {
            let datagram = match self.channel.receive(!lost)? {
                Received::Datagram(datagram) => datagram,
                Received::Overrun => {
                    // Queued answers can still be read. The others are lost, possibly including that of the fence.
                    lost = true;
                    continue;
                }
                Received::Nothing => {
                    return Err(Error::Socket(netlink_blocking::Error::AnswerLost));
                }
            };
            for message in messages(datagram) {
                let message = message?;
                let place = batch.place(message.header.sequence_number);
                if let Some(answer) = place.and_then(|place| answers.get_mut(place)) {
                    *answer = error_code(&message).or(*answer);
                }
            }
            if answers.get(fence).is_some_and(Option::is_some) {
                return if lost {
                    Err(Error::Socket(netlink_blocking::Error::AnswerLost))
                } else {
                    Ok(())
                };
            }
        }
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

/// Whether every request that was sent failed as if the family were gone.
fn all_missing(failed: &[(usize, Error)], requests: usize) -> bool {
    let missing = |error: &Error| error.errno() == Some(ENOENT);
    let unsent = |error: &Error| matches!(error, Error::NotAWrite { .. } | Error::Encode { .. });
    failed.len() == requests
        && failed.iter().any(|(_, error)| missing(error))
        && failed.iter().all(|(_, e)| missing(e) || unsent(e))
}
