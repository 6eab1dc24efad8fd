//! How datagrams get to the kernel: a netlink socket. Tests put something else in its place, which
//! fails where the kernel can.

use std::io;
use std::time::Duration;

use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{self, Timeout};

use crate::error::Error;

/// The kernel answers within the send call, so an answer that is not there has been lost; the
/// limit only turns a bug into an error.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Space for the answers of one send. The kernel cuts it to `net.core.rmem_max` if the process
/// may not go beyond.
const SOCKET_BUFFER_BYTES: usize = 4 * 1024 * 1024;

const MSG_TRUNC: i32 = 0x20;
const MSG_DONTWAIT: i32 = 0x40;

/// What carries datagrams to the kernel and back.
pub trait Transport: Send {
    /// Sends one datagram and gives back how much of it was taken.
    fn send(&mut self, datagram: &[u8]) -> io::Result<usize>;

    /// Puts one datagram into the empty `buffer` as far as it fits, and gives back how long it is.
    /// Without one it fails with `WouldBlock`: at once, or after [`ANSWER_LIMIT`] if it is to `wait`.
    fn receive(&mut self, buffer: &mut Vec<u8>, wait: bool) -> io::Result<usize>;
}

/// A connected, blocking netlink socket with a time limit for answers.
pub(crate) struct NetlinkTransport {
    socket: Socket,
}

impl NetlinkTransport {
    /// Opens a socket in the network namespace of the calling thread.
    pub(crate) fn open(protocol: isize) -> Result<Self, Error> {
        let mut socket = Socket::new(protocol).map_err(|e| Error::io("open it", e))?;
        socket.bind_auto().map_err(|e| Error::io("bind it", e))?;
        // Connected to the kernel: messages of other processes are not received at all.
        socket
            .connect(&SocketAddr::new(0, 0))
            .map_err(|e| Error::io("connect it", e))?;
        sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_LIMIT))
            .map_err(|e| Error::io("set its time limit", e.into()))?;
        // Both may be refused or cut down; a full buffer is handled when it happens.
        if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER_BYTES)
                .map_err(|e| Error::io("set its buffer size", e.into()))?;
        }
        // Errors come back without a copy of the request.
        socket
            .set_cap_ack(true)
            .map_err(|e| Error::io("shorten its errors", e))?;
        Ok(Self { socket })
    }
}

impl Transport for NetlinkTransport {
    fn send(&mut self, datagram: &[u8]) -> io::Result<usize> {
        self.socket.send(datagram, 0)
    }

    fn receive(&mut self, buffer: &mut Vec<u8>, wait: bool) -> io::Result<usize> {
        let flags = if wait {
            MSG_TRUNC
        } else {
            MSG_TRUNC | MSG_DONTWAIT
        };
        self.socket.recv(buffer, flags)
    }
}
