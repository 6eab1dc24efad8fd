//! SCTP: clients open an association each (one-to-one style), a server's socket has all of its
//! associations (one-to-many style) and needs to accept none. With a socket of its own for each, what
//! a client sends while it is accepted is sometimes left lying by the kernel until it is sent again
//! three seconds later. Both are carried by the sockets of the standard library.
//!
//! Every socket has one address: an association that lists several would be open beside the address that a Service
//! translates, and multi-homed ones are not supported (S-110).

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect,
    listen, setsockopt, socket, sockopt,
};

use super::port;

/// How often a socket is checked for a refusal. An ICMP error does not wake a waiting thread.
const LOOK: u8 = 2;
/// Not zero, or the socket does not listen.
const BACKLOG: i32 = 1;

/// Opens an association, from the address that the routes choose.
///
/// # Errors
/// Refused by an ABORT or by ICMP, or nothing came until the deadline.
pub(super) fn open(target: SocketAddr, deadline: Duration) -> io::Result<TcpStream> {
    let start = Instant::now();
    let own = own_address(target)?;
    let fd = port::with_next(|port| {
        let fd = new_socket(target.ip(), SockType::Stream, SockFlag::SOCK_NONBLOCK)?;
        let own = SocketAddr::new(own, port);
        bind(fd.as_raw_fd(), &SockaddrStorage::from(own))?;
        match connect(fd.as_raw_fd(), &SockaddrStorage::from(target)) {
            Ok(()) | Err(Errno::EINPROGRESS) => Ok(fd),
            Err(error) => Err(error.into()),
        }
    })?;
    let stream = TcpStream::from(fd);
    loop {
        // An ICMP error does not end a connection attempt over SCTP, but the socket stores it.
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        let mut polled = [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)];
        match poll(&mut polled, LOOK) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let events = polled[0].revents().unwrap_or(PollFlags::empty());
        if events.contains(PollFlags::POLLOUT) {
            stream.set_nonblocking(false)?;
            return Ok(stream);
        }
        if start.elapsed() >= deadline {
            return Err(ErrorKind::TimedOut.into());
        }
    }
}

/// Listens on a port, a socket for each family that this kernel has. Messages come and go with their peer's address,
/// as datagrams do.
///
/// # Errors
/// When the port is taken, or this kernel has no SCTP (module `sctp`).
pub(super) fn listeners(port: u16) -> io::Result<Vec<UdpSocket>> {
    let on = |address: IpAddr| -> io::Result<UdpSocket> {
        let fd = new_socket(address, SockType::SeqPacket, SockFlag::empty())?;
        if address.is_ipv6() {
            setsockopt(&fd, sockopt::Ipv6V6Only, &true)?;
        }
        let address = SocketAddr::new(address, port);
        bind(fd.as_raw_fd(), &SockaddrStorage::from(address))?;
        listen(&fd, Backlog::new(BACKLOG)?)?;
        Ok(UdpSocket::from(fd))
    };
    let mut sockets = vec![on(Ipv4Addr::UNSPECIFIED.into())?];
    match on(Ipv6Addr::UNSPECIFIED.into()) {
        Err(error) if error.raw_os_error() == Some(Errno::EAFNOSUPPORT as i32) => {}
        socket => sockets.push(socket?),
    }
    Ok(sockets)
}

/// Whether this kernel has SCTP; it loads the module if necessary.
pub(super) fn kernel_has_sctp() -> bool {
    let any = Ipv4Addr::UNSPECIFIED.into();
    new_socket(any, SockType::SeqPacket, SockFlag::empty()).is_ok()
}

fn new_socket(of: IpAddr, style: SockType, flags: SockFlag) -> io::Result<OwnedFd> {
    let family = if of.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let flags = flags | SockFlag::SOCK_CLOEXEC;
    Ok(socket(family, style, flags, SockProtocol::Sctp)?)
}

/// The address that packets to this target carry.
fn own_address(target: SocketAddr) -> io::Result<IpAddr> {
    let probe = UdpSocket::bind(port::any(target, 0))?;
    // Sends nothing.
    probe.connect(target)?;
    Ok(probe.local_addr()?.ip())
}
