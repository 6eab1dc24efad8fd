//! A netlink socket that sends datagrams and hands out what comes back; knows nothing of IPVS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{self, Timeout};

use crate::error::Error;

/// The kernel answers within the send call, so an answer that is not there has been lost; the
/// limit only turns a bug into an error.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Larger than any datagram the kernel makes for a dump (32 KiB).
const RECEIVE_BYTES: usize = 128 * 1024;

/// Space for the answers of one send. The kernel cuts it to `net.core.rmem_max` if the process
/// may not go beyond.
const SOCKET_BUFFER_BYTES: usize = 4 * 1024 * 1024;

const MSG_TRUNC: i32 = 0x20;
const MSG_DONTWAIT: i32 = 0x40;

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

/// A connected, blocking netlink socket with a time limit for answers.
pub(crate) struct Channel {
    socket: Socket,
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
        let mut socket = Socket::new(protocol).map_err(|e| failed("open it", e))?;
        socket.bind_auto().map_err(|e| failed("bind it", e))?;
        // Connected to the kernel: messages of other processes are not received at all.
        socket
            .connect(&SocketAddr::new(0, 0))
            .map_err(|e| failed("connect it", e))?;
        sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_LIMIT))
            .map_err(|e| failed("set its time limit", e.into()))?;
        // Both may be refused or cut down; a full buffer is handled when it happens.
        if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER_BYTES)
                .map_err(|e| failed("set its buffer size", e.into()))?;
        }
        // Errors come back without a copy of the request.
        socket
            .set_cap_ack(true)
            .map_err(|e| failed("shorten its errors", e))?;
        let buffer = Vec::with_capacity(RECEIVE_BYTES);
        Ok(Self {
            socket,
            buffer,
            sequence: 0,
            counters: Counters::default(),
            tap: None,
        })
    }

    pub(crate) fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
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
        loop {
            match self.socket.send(outgoing.bytes, 0) {
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
        let flags = if wait {
            MSG_TRUNC
        } else {
            MSG_TRUNC | MSG_DONTWAIT
        };
        loop {
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, flags) {
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

fn failed(action: &'static str, error: io::Error) -> Error {
    Error::Io {
        action,
        source: Arc::new(error),
    }
}
