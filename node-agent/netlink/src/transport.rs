//! The connection to the kernel: a netlink socket. Tests replace it by a transport that fails like the kernel.

use std::io;
use std::time::Duration;

use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{self, Timeout};

use crate::error::Error;

/// The time limit for an answer. The kernel answers within the send call, so a missing answer is lost; the limit only
/// turns a bug into an error.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The receive buffer for the answers of one send, in bytes. The kernel reduces it to `net.core.rmem_max` if the
/// process may not exceed that.
const SOCKET_BUFFER_BYTES: usize = 4 * 1024 * 1024;

const MSG_TRUNC: i32 = 0x20;
const MSG_DONTWAIT: i32 = 0x40;

/// Exchanges datagrams with the kernel.
pub trait Transport: Send {
    /// Sends one datagram and returns the number of bytes accepted.
    fn send(&mut self, datagram: &[u8]) -> io::Result<usize>;

    /// Receives one datagram into the empty `buffer`, truncated to its capacity, and returns the datagram's full
    /// length. If there is none, it fails with `WouldBlock`: at once, or after [`ANSWER_TIMEOUT`] with `wait`.
    fn receive(&mut self, buffer: &mut Vec<u8>, wait: bool) -> io::Result<usize>;

    /// The number of the socket in messages of the kernel, if it has one.
    fn port(&self) -> Option<u32> {
        None
    }
}

/// How a socket differs from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// The longest datagram in bytes, if it is more than usual. The kernel reduces it to `net.core.wmem_max` if the
    /// process may not exceed that.
    pub send_buffer_bytes: Option<usize>,
    /// Whether errors contain the place in the request (`NETLINK_EXT_ACK`).
    pub extended_errors: bool,
}

/// A connected, blocking netlink socket with a time limit for answers.
pub(crate) struct NetlinkTransport {
    socket: Socket,
    port: u32,
}

impl NetlinkTransport {
    /// Opens a socket in the network namespace of the calling thread.
    pub(crate) fn open(protocol: isize, options: Options) -> Result<Self, Error> {
        let mut socket = Socket::new(protocol).map_err(|e| Error::io("open the socket", e))?;
        let address = socket
            .bind_auto()
            .map_err(|e| Error::io("bind the socket", e))?;
        // Connect to the kernel, so that messages of other processes are not received.
        socket
            .connect(&SocketAddr::new(0, 0))
            .map_err(|e| Error::io("connect the socket to the kernel", e))?;
        sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))
            .map_err(|e| Error::io("set the receive timeout", e.into()))?;
        // Both calls may be refused or set a smaller size; a full buffer is handled when it happens.
        if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER_BYTES).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER_BYTES)
                .map_err(|e| Error::io("set the receive buffer size", e.into()))?;
        }
        // Errors are returned without a copy of the request.
        socket
            .set_cap_ack(true)
            .map_err(|e| Error::io("set NETLINK_CAP_ACK", e))?;
        if options.extended_errors {
            socket
                .set_ext_ack(true)
                .map_err(|e| Error::io("set NETLINK_EXT_ACK", e))?;
        }
        if let Some(bytes) = options.send_buffer_bytes
            && sockopt::set_socket_send_buffer_size_force(&socket, bytes).is_err()
        {
            sockopt::set_socket_send_buffer_size(&socket, bytes)
                .map_err(|e| Error::io("set the send buffer size", e.into()))?;
        }
        Ok(Self {
            socket,
            port: address.port_number(),
        })
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

    fn port(&self) -> Option<u32> {
        Some(self.port)
    }
}
