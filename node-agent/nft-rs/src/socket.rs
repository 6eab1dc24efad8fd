//! The blocking socket.

use netlink_blocking::{Channel, Counters, Options, Outgoing, Received};
use netlink_packet_core::NLM_F_DUMP_INTR;
use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::errno::Errno;
use crate::error::Error;
use crate::message::{Envelope, error_code, messages};
use crate::query::Query;
use crate::reply::{Generation, Reply};

const EINVAL: i32 = 22;
const EPROTONOSUPPORT: i32 = 93;

/// The longest transaction in bytes. It is only a limit: the kernel takes memory for each send.
const SEND_BYTES: usize = 256 * 1024 * 1024;

/// The attempts to list something that changes meanwhile.
pub(crate) const DUMP_ATTEMPTS: u32 = 20;

/// A blocking socket to the nf_tables of one network namespace.
pub struct Socket {
    pub(crate) channel: Channel,
}

impl Socket {
    /// Opens a socket in the network namespace of the calling thread, and checks that the kernel has nf_tables. If the
    /// socket fails later ([`Error::is_of_socket`]), the next call opens another one, in the namespace of the thread that
    /// makes that call. Tables with an owner then end, or have no owner if they persist.
    ///
    /// # Errors
    /// [`Error::NoNftables`]; `is_not_permitted` without `CAP_NET_ADMIN`; [`Error::Socket`] if the socket cannot be
    /// opened.
    pub fn open() -> Result<Self, Error> {
        let options = Options {
            send_buffer_bytes: Some(SEND_BYTES),
            extended_errors: true,
        };
        let channel =
            Channel::open_with(NETLINK_NETFILTER, options).map_err(|error| {
                match error.errno() {
                    Some(EPROTONOSUPPORT) => Error::NoNftables,
                    _ => error.into(),
                }
            })?;
        Self::over(channel)
    }

    pub(crate) fn over(channel: Channel) -> Result<Self, Error> {
        let mut socket = Self { channel };
        match socket.generation() {
            Ok(_) => Ok(socket),
            // nfnetlink's answer for a subsystem that it does not have.
            Err(Error::Query {
                errno: Errno(EINVAL),
                ..
            }) => Err(Error::NoNftables),
            Err(error) => Err(error),
        }
    }

    /// The present generation of the rules.
    ///
    /// # Errors
    /// The kernel refused the request, or the socket failed.
    pub fn generation(&mut self) -> Result<Generation, Error> {
        let replies = self.ask(&Query::Generation)?;
        let found = replies.into_iter().find_map(|reply| match reply {
            Reply::Generation(generation) => Some(generation),
            _ => None,
        });
        found.ok_or_else(|| {
            netlink_packet_core::DecodeError::from("the answer contains no generation").into()
        })
    }

    /// The number of this socket, which events contain for its transactions; `None` after a failure, until the next
    /// call. Another socket has another number.
    #[must_use]
    pub fn port(&self) -> Option<u32> {
        self.channel.port()
    }

    /// The traffic of this socket since it was opened.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.channel.counters()
    }

    /// Passes every send to `tap` from now on, before it is sent: to count, to print, or to record and replay.
    pub fn tap(&mut self, tap: impl FnMut(&Outgoing<'_>) + Send + 'static) {
        self.channel.set_tap(tap);
    }

    /// Sends a request that reads, and collects the answers.
    pub(crate) fn ask(&mut self, query: &Query) -> Result<Vec<Reply>, Error> {
        self.fold(query, Vec::new, Vec::push)
    }

    /// Sends a request that reads, and passes the answers to `add` as they come. Repeats it with another `new` value if
    /// a list changed meanwhile or a part of the answer was lost.
    pub(crate) fn fold<T>(
        &mut self,
        query: &Query,
        mut new: impl FnMut() -> T,
        mut add: impl FnMut(&mut T, Reply),
    ) -> Result<T, Error> {
        let mut attempts = 0_u32;
        loop {
            let mut value = new();
            // The kernel does not mark every list during which a transaction took effect.
            let before = self.generation_of(query)?;
            let asked = self.ask_once(query, |reply| add(&mut value, reply));
            let asked = asked.and_then(|whole| Ok(whole && self.generation_of(query)? == before));
            let error = match self.channel.settle(asked, Error::is_of_socket) {
                Ok(true) => return Ok(value),
                Ok(false) => Error::Interrupted {
                    what: query.to_string(),
                    attempts: DUMP_ATTEMPTS,
                },
                Err(error @ Error::Socket(netlink_blocking::Error::AnswerLost)) => error,
                Err(error) => return Err(error),
            };
            attempts = attempts.saturating_add(1);
            if attempts >= DUMP_ATTEMPTS {
                return Err(error);
            }
        }
    }

    /// The present generation if the answer to the request is a list.
    fn generation_of(&mut self, query: &Query) -> Result<Option<u32>, Error> {
        if query.is_list() {
            return Ok(Some(self.generation()?.id));
        }
        Ok(None)
    }

    /// Sends a request once. Returns false if the list changed while it was read.
    fn ask_once(&mut self, query: &Query, mut answered: impl FnMut(Reply)) -> Result<bool, Error> {
        let envelope = Envelope {
            sequence: self.channel.next_sequence(),
            acknowledge: true,
        };
        let mut bytes = Vec::new();
        query
            .encode(envelope, &mut bytes)
            .map_err(|source| Error::Encode {
                query: Box::new(query.clone()),
                source,
            })?;
        self.channel.send(&Outgoing {
            bytes: &bytes,
            messages: 1,
            writes: false,
        })?;
        let mut interrupted = false;
        loop {
            let Received::Datagram(datagram) = self.channel.receive(true)? else {
                return Err(Error::Socket(netlink_blocking::Error::AnswerLost));
            };
            for message in messages(datagram) {
                let message = message?;
                // Answers to an earlier, abandoned request are skipped.
                if message.header.sequence_number != envelope.sequence {
                    continue;
                }
                interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
                match error_code(&message) {
                    Some(0) => return Ok(!interrupted),
                    Some(errno) => {
                        return Err(Error::Query {
                            query: Box::new(query.clone()),
                            errno: Errno(errno),
                        });
                    }
                    None => answered(Reply::decode(&message)?),
                }
            }
        }
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket")
            .field("port", &self.port())
            .finish_non_exhaustive()
    }
}
