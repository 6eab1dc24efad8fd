//! One attempt of a client: a connection, a datagram or an echo request from the calling thread's
//! namespace, with a deadline, and exactly how it ended.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

use super::{Protocol, association, port};

/// An ICMP error of this machine's own rules is there before the call returns.
const AT_ONCE: Duration = Duration::from_millis(50);

pub(super) const QUESTION: &[u8] = b"who are you?";

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// A server answered.
    Answered {
        /// Its name.
        by: String,
        /// Our address as it saw it.
        seen: IpAddr,
    },
    /// Refused: a TCP reset or an ABORT of SCTP in answer to the first packet, or ICMP port unreachable.
    Refused,
    /// Sending itself failed: the kernel's own hooks dropped the packet (EPERM).
    Denied,
    /// ICMP said that the host or network cannot be reached, or there is no route.
    Unreachable,
    /// The connection was open and was reset.
    Reset,
    /// Nothing came until the deadline.
    Silent,
    /// Anything else, in the words of the system or the server.
    Odd(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered { by, seen } => write!(f, "answered by {by}, which saw {seen}"),
            Self::Refused => f.write_str("refused"),
            Self::Denied => f.write_str("denied"),
            Self::Unreachable => f.write_str("unreachable"),
            Self::Reset => f.write_str("reset"),
            Self::Silent => f.write_str("silence"),
            Self::Odd(words) => write!(f, "{words}"),
        }
    }
}

/// An attempt that ended.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// How.
    pub outcome: Outcome,
    /// Our port as a server saw it.
    pub port: Option<u16>,
    /// After how long.
    pub took: Duration,
}

/// Makes one attempt.
#[must_use]
pub fn attempt(protocol: Protocol, target: SocketAddr, deadline: Duration) -> Attempt {
    match protocol {
        Protocol::Tcp => tcp(target, deadline),
        Protocol::Udp => udp(target, deadline),
        Protocol::Sctp => sctp(target, deadline),
        Protocol::Icmp => ping(target.ip(), deadline),
    }
}

/// Connects, reads the greeting to its end.
#[must_use]
pub fn tcp(target: SocketAddr, deadline: Duration) -> Attempt {
    timed(|start, port| {
        let mut stream = port::connect(target, deadline)?;
        let mut text = String::new();
        // A server says all at once, so one timeout for the first byte is enough.
        stream.set_read_timeout(Some(left(start, deadline)))?;
        match stream.read_to_string(&mut text) {
            Ok(_) => {
                *port = port_in(&text);
                Ok(understand(&text))
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(Outcome::Reset),
            Err(error) => Err(error),
        }
    })
}

/// Opens an association, asks and waits for the answer.
#[must_use]
pub fn sctp(target: SocketAddr, deadline: Duration) -> Attempt {
    timed(|start, port| {
        let mut stream = association::open(target, deadline)?;
        stream.write_all(QUESTION)?;
        stream.set_read_timeout(Some(left(start, deadline)))?;
        let mut buffer = [0; 512];
        // One message is read whole.
        let length = stream.read(&mut buffer)?;
        let text = String::from_utf8_lossy(&buffer[..length]);
        *port = port_in(&text);
        Ok(understand(&text))
    })
}

/// Sends one datagram from a port of its own and waits for the answer.
#[must_use]
pub fn udp(target: SocketAddr, deadline: Duration) -> Attempt {
    timed(|start, port| {
        let socket = port::with_next(|port| UdpSocket::bind(port::any(target, port)))?;
        // Connected, so that ICMP errors come back as errors of the socket (S-21).
        socket.connect(target)?;
        if let Err(error) = socket.send(QUESTION) {
            return if is_refused_here(&socket)? {
                Ok(Outcome::Refused)
            } else {
                Err(error)
            };
        }
        socket.set_read_timeout(Some(left(start, deadline)))?;
        let mut buffer = [0; 512];
        let length = socket.recv(&mut buffer)?;
        let text = String::from_utf8_lossy(&buffer[..length]);
        *port = port_in(&text);
        Ok(understand(&text))
    })
}

/// Whether a send failed because a rule of this machine refuses the datagram: the call fails with EPERM, as it does
/// where a rule drops it, but the ICMP error of a refusal then waits at the socket.
fn is_refused_here(socket: &UdpSocket) -> io::Result<bool> {
    socket.set_read_timeout(Some(AT_ONCE))?;
    let waiting = socket.recv(&mut [0; 1]);
    Ok(waiting.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused))
}

/// Sends one echo request. An answer counts as one by the target itself.
#[must_use]
pub fn ping(target: IpAddr, deadline: Duration) -> Attempt {
    timed(|start, _| {
        let (family, protocol, kind) = match target {
            IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp, 8),
            IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6, 128),
        };
        let fd = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, protocol)?;
        let socket = UdpSocket::from(fd);
        socket.connect((target, 0))?;
        socket.send(&[kind, 0, 0, 0, 0, 0, 0, 1])?;
        socket.set_read_timeout(Some(left(start, deadline)))?;
        socket.recv(&mut [0; 512])?;
        Ok(Outcome::Answered {
            by: target.to_string(),
            seen: target,
        })
    })
}

fn timed(act: impl FnOnce(Instant, &mut Option<u16>) -> io::Result<Outcome>) -> Attempt {
    let (start, mut port) = (Instant::now(), None);
    let outcome = act(start, &mut port).unwrap_or_else(|error| understand_error(&error));
    Attempt {
        outcome,
        port,
        took: start.elapsed(),
    }
}

/// Remaining time of a deadline; never zero, which would mean "for ever".
pub(super) fn left(start: Instant, deadline: Duration) -> Duration {
    deadline
        .saturating_sub(start.elapsed())
        .max(Duration::from_millis(1))
}

/// The port of the client in a greeting.
fn port_in(greeting: &str) -> Option<u16> {
    greeting.split_whitespace().nth(2)?.parse().ok()
}

pub(super) fn understand(greeting: &str) -> Outcome {
    let mut words = greeting.split_whitespace();
    match (words.next(), words.next().map(str::parse)) {
        (Some(by), Some(Ok(seen))) => Outcome::Answered {
            by: by.to_owned(),
            seen,
        },
        _ => Outcome::Odd(format!("an answer with an unknown name: {greeting:?}")),
    }
}

pub(super) fn understand_error(error: &io::Error) -> Outcome {
    // Not the kind "permission denied": that is also what a prohibiting ICMP error becomes.
    if error.raw_os_error() == Some(nix::errno::Errno::EPERM as i32) {
        return Outcome::Denied;
    }
    match error.kind() {
        ErrorKind::ConnectionRefused => Outcome::Refused,
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => Outcome::Unreachable,
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Outcome::Silent,
        ErrorKind::ConnectionReset => Outcome::Reset,
        _ => Outcome::Odd(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_of_another_server_is_not_taken_for_an_answer() {
        assert!(matches!(
            understand("HTTP/1.1 400 Bad Request"),
            Outcome::Odd(_)
        ));
        assert!(matches!(understand(""), Outcome::Odd(_)));
        let seen = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(
            understand("pod-a1 127.0.0.1 4711"),
            Outcome::Answered {
                by: "pod-a1".into(),
                seen
            }
        );
    }

    #[test]
    fn a_closed_port_refuses_over_both_protocols() {
        // Bound and dropped: no other program on loopback has these ports for the moment.
        let tcp_port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let udp_port = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        assert_eq!(
            tcp(tcp_port, Duration::from_secs(5)).outcome,
            Outcome::Refused
        );
        assert_eq!(
            udp(udp_port, Duration::from_secs(5)).outcome,
            Outcome::Refused
        );
    }

    #[test]
    fn a_server_that_says_nothing_is_silence() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let attempt = tcp(listener.local_addr().unwrap(), Duration::from_millis(50));
        assert_eq!(attempt.outcome, Outcome::Silent);
    }
}
