//! Reports the transactions of all programs in a network namespace.
//!
//! The kernel also reports each object and each element that changed, to listeners of the same group. They are read and
//! dropped; a queue that overruns counts as an event, because a listener then has to read the state anyway.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket as RawSocket, SocketAddr};

use crate::error::Error;
use crate::message::messages;
use crate::reply::{Generation, Reply};

/// `NFNLGRP_NFTABLES`.
const GROUP: u32 = 7;
/// Larger than any datagram that the kernel sends to listeners.
const RECEIVE_BYTES: usize = 256 * 1024;
const MSG_DONTWAIT: i32 = 0x40;
const ENOBUFS: i32 = 105;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A transaction was executed.
    Commit {
        /// The generation that it made, and the process.
        generation: Generation,
        /// The number of the socket from which it came ([`crate::Socket::port`]).
        port: u32,
    },
    /// Reports were lost, so that there may have been transactions of anyone.
    Lost,
}

/// A socket that receives reports.
pub struct Events {
    socket: RawSocket,
    buffer: Vec<u8>,
}

impl Events {
    /// Opens a socket in the network namespace of the calling thread. Transactions from now on are reported.
    ///
    /// # Errors
    /// [`Error::Socket`] if the socket cannot be opened.
    pub fn open() -> Result<Self, Error> {
        let mut socket = RawSocket::new(NETLINK_NETFILTER)
            .map_err(|e| failed("open the socket of events", e))?;
        socket
            .bind(&SocketAddr::new(0, 0))
            .map_err(|e| failed("bind the socket of events", e))?;
        let events = Self {
            socket,
            buffer: Vec::with_capacity(RECEIVE_BYTES),
        };
        events.resume()?;
        Ok(events)
    }

    /// Receives no reports until [`Self::resume`]: for a large transaction of one's own, for each element of which the
    /// kernel otherwise makes a report.
    ///
    /// # Errors
    /// [`Error::Socket`] if the kernel refuses.
    pub fn pause(&self) -> Result<(), Error> {
        self.socket
            .drop_membership(GROUP)
            .map_err(|e| failed("leave the group of events", e))
    }

    /// Receives reports again. Compare the generation to find out whether others committed meanwhile.
    ///
    /// # Errors
    /// [`Error::Socket`] if the kernel refuses.
    pub fn resume(&self) -> Result<(), Error> {
        self.socket
            .add_membership(GROUP)
            .map_err(|e| failed("join the group of events", e))
    }

    /// The next event that has arrived; `None` if there is none. It never waits.
    ///
    /// # Errors
    /// [`Error::Socket`] if the socket failed.
    pub fn poll(&mut self) -> Result<Option<Event>, Error> {
        loop {
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, MSG_DONTWAIT) {
                Ok(_) => {
                    if let Some(event) = commit(&self.buffer) {
                        return Ok(Some(event));
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.raw_os_error() == Some(ENOBUFS) => return Ok(Some(Event::Lost)),
                Err(e) => return Err(failed("receive events", e)),
            }
        }
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Events {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

/// The commit in a datagram. A transaction is reported by one message, after those of its objects.
fn commit(datagram: &[u8]) -> Option<Event> {
    messages(datagram)
        .map_while(Result::ok)
        .find_map(|message| match Reply::decode(&message) {
            Ok(Reply::Generation(generation)) => Some(Event::Commit {
                generation,
                port: message.header.port_number,
            }),
            _ => None,
        })
}

fn failed(action: &'static str, error: io::Error) -> Error {
    netlink_blocking::Error::io(action, error).into()
}
