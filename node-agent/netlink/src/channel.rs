//! Sends datagrams and hands out what comes back, over one socket after the other.
//!
//! Invariant: nothing that was asked of a socket before it failed is answered on the one that takes
//! its place. A list that was not read to its end goes on for ever: the kernel begins no other on the
//! same socket (`EBUSY`) before it was.

use std::io;

use crate::error::Error;
use crate::transport::{ANSWER_LIMIT, NetlinkTransport, Transport};

/// Larger than any datagram the kernel makes for a dump (32 KiB).
const RECEIVE_BYTES: usize = 128 * 1024;

/// What went over a socket since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Netlink messages sent.
    pub messages: u64,
    /// Send calls.
    pub sends: u64,
    /// Datagrams received.
    pub datagrams: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Of the messages sent, those that were to change something.
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

/// One send, as a tap is shown it.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// The netlink messages, one behind the other.
    pub bytes: &'a [u8],
    /// How many they are.
    pub messages: usize,
    /// Whether they are to change something; others only ask.
    pub writes: bool,
}

/// Who looks at everything that is sent.
type Tap = Box<dyn FnMut(&Outgoing<'_>) + Send>;

/// Opens a transport, also in the place of one that failed.
pub type Opener = Box<dyn FnMut() -> Result<Box<dyn Transport>, Error> + Send>;

/// Datagrams to the kernel and back, over one transport after the other.
pub struct Channel {
    opener: Opener,
    /// `None` after a failure, until something is sent again.
    transport: Option<Box<dyn Transport>>,
    buffer: Vec<u8>,
    sequence: u32,
    counters: Counters,
    tap: Option<Tap>,
}

/// What one receive call brought.
#[derive(Debug)]
pub enum Received<'a> {
    /// A datagram.
    Datagram(&'a [u8]),
    /// The kernel dropped answers for want of space.
    Overrun,
    /// Nothing is waiting (only when not waiting for it).
    Nothing,
}

impl Channel {
    /// Opens a socket of a protocol (`NETLINK_GENERIC` is 16) in the network namespace of the calling thread.
    ///
    /// # Errors
    /// There is no socket to be had.
    pub fn open(protocol: isize) -> Result<Self, Error> {
        Self::over(Box::new(move || {
            let transport = NetlinkTransport::open(protocol)?;
            Ok(Box::new(transport))
        }))
    }

    /// Opens the first of the transports that `opener` makes.
    ///
    /// # Errors
    /// Those of the opener.
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

    /// Passes a result on. After an error that `is_of_socket`, what else the socket will say is not known: the next
    /// send opens another one.
    ///
    /// # Errors
    /// That of the result.
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

    /// A sequence number that no message had before (they wrap at 2³²).
    pub fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// The sequence number given last.
    #[must_use]
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Sequence numbers up to this one are taken.
    pub fn took_up_to(&mut self, sequence: u32) {
        self.sequence = sequence;
    }

    /// What went over it since it was opened.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Shows `tap` everything before it is sent, from now on: to count, to print, or to keep and replay. Without a
    /// tap this costs a comparison a send.
    pub fn set_tap(&mut self, tap: impl FnMut(&Outgoing<'_>) + Send + 'static) {
        self.tap = Some(Box::new(tap));
    }

    /// Sends one datagram.
    ///
    /// # Errors
    /// [`Error::Io`], or the opener's where another socket has to be opened.
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

    /// Waits for one datagram, or only looks whether one is there.
    ///
    /// # Errors
    /// [`Error::Silent`] when none comes within [`ANSWER_LIMIT`]; [`Error::Io`].
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
                    return Err(Error::Silent(ANSWER_LIMIT));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
                Err(e) => return Err(Error::io("receive", e)),
            }
        }
    }
}

const ENOBUFS: i32 = 105;
