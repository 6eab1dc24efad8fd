//! Sends datagrams and returns the answers, over a socket that is replaced after a failure.
//!
//! Invariant: a request sent on a failed socket is never answered on the socket that replaces it. Replacing the
//! socket is necessary because a list that was not read to its end never finishes: until then, the kernel starts no
//! other list on the same socket (`EBUSY`).

use std::io;

use crate::error::Error;
use crate::message::{RawMessage, error_code, messages};
use crate::transport::{ANSWER_TIMEOUT, NetlinkTransport, Options, Transport};

/// Larger than any datagram that the kernel sends for a dump (32 KiB).
const RECEIVE_BYTES: usize = 128 * 1024;

/// Traffic of a channel since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// The number of netlink messages sent.
    pub messages: u64,
    /// The number of send calls.
    pub sends: u64,
    /// The number of datagrams received.
    pub datagrams: u64,
    /// The number of bytes sent.
    pub bytes: u64,
    /// The number of messages sent that change something.
    pub writes: u64,
}

impl Counters {
    fn add(&mut self, outgoing: &Outgoing<'_>) {
        let number = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
        let messages = number(outgoing.messages);
        self.sends = self.sends.saturating_add(1);
        self.messages = self.messages.saturating_add(messages);
        self.bytes = self.bytes.saturating_add(number(outgoing.bytes.len()));
        if outgoing.writes {
            self.writes = self.writes.saturating_add(messages);
        }
    }
}

/// One send, as passed to a tap.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// The netlink messages, concatenated.
    pub bytes: &'a [u8],
    /// The number of messages.
    pub messages: usize,
    /// Whether the messages change something; otherwise they only read.
    pub writes: bool,
}

/// A callback that receives everything that is sent.
type Tap = Box<dyn FnMut(&Outgoing<'_>) + Send>;

/// Opens a transport, initially and to replace one that failed.
pub type Opener = Box<dyn FnMut() -> Result<Box<dyn Transport>, Error> + Send>;

/// Exchanges datagrams with the kernel, over one transport at a time.
pub struct Channel {
    opener: Opener,
    /// `None` after a failure, until the next send.
    transport: Option<Box<dyn Transport>>,
    buffer: Vec<u8>,
    sequence: u32,
    counters: Counters,
    tap: Option<Tap>,
}

/// The result of one receive call.
#[derive(Debug)]
pub enum Received<'a> {
    /// A datagram.
    Datagram(&'a [u8]),
    /// The kernel dropped answers because the receive buffer was full.
    Overrun,
    /// No datagram is available (only if the call does not wait).
    Nothing,
}

impl Channel {
    /// Opens a socket for a netlink protocol (`NETLINK_GENERIC` is 16) in the network namespace of the calling
    /// thread.
    ///
    /// # Errors
    /// [`Error::Io`] if the socket cannot be opened.
    pub fn open(protocol: isize) -> Result<Self, Error> {
        Self::open_with(protocol, Options::default())
    }

    /// As [`Self::open`], with a socket that differs from others.
    ///
    /// # Errors
    /// [`Error::Io`] if the socket cannot be opened.
    pub fn open_with(protocol: isize, options: Options) -> Result<Self, Error> {
        Self::over(Box::new(move || {
            let transport = NetlinkTransport::open(protocol, options)?;
            Ok(Box::new(transport))
        }))
    }

    /// Opens a channel over transports that `opener` creates.
    ///
    /// # Errors
    /// The errors of the opener.
    pub fn over(mut opener: Opener) -> Result<Self, Error> {
        let transport = opener()?;
        Ok(Self {
            opener,
            transport: Some(transport),
            buffer: Vec::with_capacity(RECEIVE_BYTES),
            sequence: 0,
            counters: Counters::default(),
            tap: None,
        })
    }

    /// Returns the result unchanged. After an error for which `is_of_socket` is true, further answers on the socket
    /// are unreliable, so the next send opens another socket.
    ///
    /// # Errors
    /// The error of the result.
    pub fn settle<T, E>(
        &mut self,
        result: Result<T, E>,
        is_of_socket: impl Fn(&E) -> bool,
    ) -> Result<T, E> {
        if result.as_ref().is_err_and(is_of_socket) {
            self.transport = None;
        }
        result
    }

    /// The next unused sequence number (they wrap at 2³²).
    pub fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// The sequence number used last.
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Marks sequence numbers up to this one as used.
    pub fn took_up_to(&mut self, sequence: u32) {
        self.sequence = sequence;
    }

    /// The number of the socket in messages of the kernel; `None` after a failure, until the next send.
    #[must_use]
    pub fn port(&self) -> Option<u32> {
        self.transport
            .as_ref()
            .and_then(|transport| transport.port())
    }

    /// The traffic since the channel was opened.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Passes every send to `tap` from now on, before it is sent: to count, to print, or to record and replay.
    /// Without a tap, the cost is one comparison per send.
    pub fn set_tap(&mut self, tap: impl FnMut(&Outgoing<'_>) + Send + 'static) {
        self.tap = Some(Box::new(tap));
    }

    /// Sends one datagram.
    ///
    /// # Errors
    /// [`Error::Io`], or the opener's error if another socket has to be opened.
    pub fn send(&mut self, outgoing: &Outgoing<'_>) -> Result<(), Error> {
        if let Some(tap) = &mut self.tap {
            tap(outgoing);
        }
        let transport = match &mut self.transport {
            Some(transport) => transport,
            none => none.insert((self.opener)()?),
        };
        loop {
            match transport.send(outgoing.bytes) {
                Ok(sent) if sent == outgoing.bytes.len() => break,
                Ok(_) => return Err(Error::io("send", io::ErrorKind::WriteZero.into())),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io("send", e)),
            }
        }
        self.counters.add(outgoing);
        Ok(())
    }

    /// Receives one datagram. With `wait`, it waits for one; otherwise it returns at once.
    ///
    /// # Errors
    /// [`Error::Silent`] if none arrives within [`ANSWER_TIMEOUT`]; [`Error::Io`].
    pub fn receive(&mut self, wait: bool) -> Result<Received<'_>, Error> {
        let Some(transport) = &mut self.transport else {
            return Err(Error::io("receive", io::ErrorKind::NotConnected.into()));
        };
        loop {
            self.buffer.clear();
            match transport.receive(&mut self.buffer, wait) {
                Ok(length) if length > self.buffer.len() => {
                    return Err(Error::io("receive", io::ErrorKind::FileTooLarge.into()));
                }
                Ok(_) => {
                    self.counters.datagrams = self.counters.datagrams.saturating_add(1);
                    return Ok(Received::Datagram(&self.buffer));
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.raw_os_error() == Some(ENOBUFS) => return Ok(Received::Overrun),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && wait => {
                    return Err(Error::Silent(ANSWER_TIMEOUT));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
                Err(e) => return Err(Error::io("receive", e)),
            }
        }
    }

    /// Receives the answers to a send until `fence`, the sequence number of its last message, is answered. The kernel
    /// handles messages in order, so each earlier message without an answer has succeeded, unless answers were lost.
    /// Calls `answered` with each answer and its error number, 0 for success. Returns whether answers were lost.
    ///
    /// # Errors
    /// As [`Self::receive`], and [`Error::Decode`].
    pub fn collect_answers(
        &mut self,
        fence: u32,
        mut answered: impl FnMut(&RawMessage<'_>, i32),
    ) -> Result<bool, Error> {
        let mut lost = false;
        loop {
            let datagram = match self.receive(!lost)? {
                Received::Datagram(datagram) => datagram,
                Received::Overrun => {
                    // Queued answers can still be read. The others are lost, possibly including that of the fence.
                    lost = true;
                    continue;
                }
                Received::Nothing => return Ok(lost),
            };
            let mut complete = false;
            for message in messages(datagram) {
                let message = message?;
                if let Some(errno) = error_code(&message) {
                    complete |= message.header.sequence_number == fence;
                    answered(&message, errno);
                }
            }
            if complete {
                return Ok(lost);
            }
        }
    }
}

const ENOBUFS: i32 = 105;
