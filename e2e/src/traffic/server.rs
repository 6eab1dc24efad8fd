//! Servers: each answers a connection or a datagram with its own name and the peer it saw. One
//! thread per namespace serves all of its ports, both families.

use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Protocol, association};
use crate::namespace::Namespace;

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Server {
    // Dropping our end wakes the thread: it sees the hang-up and leaves.
    life: Option<UnixStream>,
    answered: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Server {
    /// Starts one that answers as `name`; when this returns, all of its ports are open.
    ///
    /// # Errors
    /// When a port is taken or the namespace cannot be entered.
    pub fn start(namespace: &Namespace, name: &str, ports: &[(Protocol, u16)]) -> Result<Self> {
        let (life, end) = UnixStream::pair()?;
        let (opened, wait) = sync_channel(1);
        let (own_name, own_ports) = (name.to_owned(), ports.to_vec());
        let answered = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&answered);
        let thread = namespace.start(name, move || {
            let mut sockets = Vec::new();
            for port in own_ports {
                sockets.extend(Socket::open(port)?);
            }
            opened.send(()).context("say that the ports are open")?;
            serve(&own_name, &sockets, &end, &counter)
        })?;
        let server = Self {
            life: Some(life),
            answered,
            thread: Some(thread),
        };
        if wait.recv().is_err() {
            // The thread ended before its ports were open: its own error says why.
            return server
                .end()
                .and_then(|()| bail!("server {name} ended at once"));
        }
        Ok(server)
    }

    /// How many connections and datagrams reached it.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Ends it.
    ///
    /// # Errors
    /// Whatever stopped it earlier.
    pub fn end(mut self) -> Result<()> {
        self.stop()
    }

    fn stop(&mut self) -> Result<()> {
        drop(self.life.take());
        match self.thread.take() {
            Some(thread) => thread.join().map_err(|_| anyhow!("a server panicked"))?,
            None => Ok(()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            crate::console::complain(&format!("a traffic server had stopped: {error:#}"));
        }
    }
}

enum Socket {
    Tcp(TcpListener),
    /// SCTP, too: one socket has all associations.
    Udp(UdpSocket),
}

impl Socket {
    fn open((protocol, port): (Protocol, u16)) -> Result<Vec<Self>> {
        // The unspecified IPv6 address serves both families (bindv6only is off by default), where there
        // is IPv6.
        let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let instead = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let sockets = match protocol {
            Protocol::Tcp => TcpListener::bind(address)
                .or_else(|error| unless_known(error, || TcpListener::bind(instead)))
                .map(|tcp| vec![Self::Tcp(tcp)]),
            Protocol::Udp => UdpSocket::bind(address)
                .or_else(|error| unless_known(error, || UdpSocket::bind(instead)))
                .map(|udp| vec![Self::Udp(udp)]),
            Protocol::Sctp => association::listeners(port)
                .map(|sockets| sockets.into_iter().map(Self::Udp).collect()),
            Protocol::Icmp => bail!("ICMP has no ports to serve"),
        };
        let sockets = sockets.with_context(|| format!("listen on {protocol} {port}"))?;
        for socket in &sockets {
            match socket {
                Self::Tcp(listener) => listener.set_nonblocking(true)?,
                Self::Udp(udp) => udp.set_nonblocking(true)?,
            }
        }
        Ok(sockets)
    }

    /// Answers all waiting clients.
    fn answer(&self, name: &str, answered: &AtomicU64) -> Result<()> {
        loop {
            let done = match self {
                Self::Tcp(listener) => listener.accept().map(|(mut stream, peer)| {
                    // A client that went away is its own business: it reports what it saw.
                    let _timed = stream.set_write_timeout(Some(Duration::from_secs(1)));
                    let _sent = stream.write_all(greeting(name, peer).as_bytes());
                }),
                Self::Udp(udp) => udp.recv_from(&mut [0; 512]).map(|(_, peer)| {
                    let _sent = udp.send_to(greeting(name, peer).as_bytes(), peer);
                }),
            };
            match done {
                Ok(()) => drop(answered.fetch_add(1, Ordering::Relaxed)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // ICMP errors about earlier answers and connections that are gone already.
                Err(error) if is_about_a_peer(&error) => {}
                Err(error) => return Err(error).with_context(|| format!("serve as {name}")),
            }
        }
    }
}

/// Something else where the kernel does not know the family of an address.
fn unless_known<T>(
    error: std::io::Error,
    other: impl FnOnce() -> std::io::Result<T>,
) -> std::io::Result<T> {
    if error.raw_os_error() == Some(nix::errno::Errno::EAFNOSUPPORT as i32) {
        other()
    } else {
        Err(error)
    }
}

fn is_about_a_peer(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::Interrupted
    )
}

/// The answer of a server: its name, then the peer's address and port.
pub(crate) fn greeting(name: &str, peer: SocketAddr) -> String {
    format!("{name} {} {}", peer.ip().to_canonical(), peer.port())
}

fn serve(name: &str, sockets: &[Socket], end: &UnixStream, answered: &AtomicU64) -> Result<()> {
    loop {
        let fds = sockets.iter().map(|socket| match socket {
            Socket::Tcp(listener) => listener.as_fd(),
            Socket::Udp(udp) => udp.as_fd(),
        });
        let mut polled: Vec<_> = fds
            .chain([end.as_fd()])
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error).context("wait for traffic"),
        }
        let ready: Vec<bool> = polled.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        if ready.last() == Some(&true) {
            return Ok(());
        }
        for (socket, ready) in sockets.iter().zip(ready) {
            if ready {
                socket.answer(name, answered)?;
            }
        }
    }
}
