//! Sends datagrams and hands out what comes back; knows nothing of IPVS.
//!
//! Invariant: nothing that was asked of a socket before it failed is answered on the one that takes
//! its place. A list that was not read to its end goes on for ever: the kernel begins no other on the
//! same socket (`EBUSY`) before it was.

use std::io;
use std::sync::Arc;

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
type Opener = Box<dyn FnMut() -> Result<Box<dyn Transport>, Error> + Send>;

/// Datagrams to the kernel and back, over one transport after the other.
pub(crate) struct Channel {
    opener: Opener,
    /// `None` after a failure, until something is sent again.
    transport: Option<Box<dyn Transport>>,
    buffer: Vec<u8>,
    sequence: u32,
    counters: Counters,
    tap: Option<Tap>,
}

/// What one receive call brought.
pub(crate) enum Received<'a> {
    Datagram(&'a [u8]),
    /// The kernel dropped answers for want of space.
    Overrun,
    /// Nothing is waiting (only when not waiting for it).
    Nothing,
}

impl Channel {
    /// Opens a socket in the network namespace of the calling thread.
    pub(crate) fn open(protocol: isize) -> Result<Self, Error> {
        Self::over(Box::new(move || {
            let transport = NetlinkTransport::open(protocol)?;
            Ok(Box::new(transport))
        }))
    }

    /// Opens the first of the transports that `opener` makes.
    pub(crate) fn over(mut opener: Opener) -> Result<Self, Error> {
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

    /// Passes a result on. After an error that leaves open what else the socket will say, there is
    /// another socket for what is sent next.
    pub(crate) fn settle<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if result.as_ref().is_err_and(Error::is_of_socket) {
            self.transport = None;
        }
        result
    }

    pub(crate) fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// The sequence number given last.
    pub(crate) fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Sequence numbers up to this one are taken.
    pub(crate) fn took_up_to(&mut self, sequence: u32) {
        self.sequence = sequence;
    }

    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    pub(crate) fn set_tap(&mut self, tap: Tap) {
        self.tap = Some(tap);
    }

    /// Sends one datagram.
    pub(crate) fn send(&mut self, outgoing: &Outgoing<'_>) -> Result<(), Error> {
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
                Ok(_) => return Err(failed("send", io::ErrorKind::WriteZero.into())),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failed("send", e)),
            }
        }
        self.counters.add(outgoing);
        Ok(())
    }

    /// Waits for one datagram, or only looks whether one is there.
    pub(crate) fn receive(&mut self, wait: bool) -> Result<Received<'_>, Error> {
        let Some(transport) = &mut self.transport else {
            return Err(failed("receive", io::ErrorKind::NotConnected.into()));
        };
        loop {
            self.buffer.clear();
            match transport.receive(&mut self.buffer, wait) {
                Ok(length) if length > self.buffer.len() => {
                    return Err(failed("receive", io::ErrorKind::FileTooLarge.into()));
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
                Err(e) => return Err(failed("receive", e)),
            }
        }
    }
}

const ENOBUFS: i32 = 105;

pub(crate) fn failed(action: &'static str, error: io::Error) -> Error {
    Error::Io {
        action,
        source: Arc::new(error),
    }
}
