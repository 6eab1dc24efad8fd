//! The ports that clients send from: one after the other, over all namespaces of this process.
//!
//! Chosen at random, as the kernel does, a port comes back soon now and then. What was sent from it
//! a moment ago is still tracked: to the same address, the new attempt is taken for more of the old
//! one, with the translation of that time; to another address of the same Service, both become the
//! same flow behind the translation, and the new one is lost.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// The default `ip_local_port_range` of the kernel; no server of a lab uses one of these ports.
const PORTS: Range<u16> = 32_768..61_000;
/// A port that something else has at the moment is passed over, this often.
const TRIES: u32 = 64;
static USED: AtomicU16 = AtomicU16::new(0);

/// Runs `act` with the next free client port.
///
/// # Errors
/// Those of the act, but for ports that are taken, and for attempts whose result the kernel did not tell; that, when it
/// happens with many ports in a row.
pub(super) fn with_next<T>(mut act: impl FnMut(u16) -> io::Result<T>) -> io::Result<T> {
    let mut tries = 0;
    loop {
        tries += 1;
        match act(next()) {
            Err(error) if (is_taken(&error) || is_without_result(&error)) && tries < TRIES => {}
            ended => return ended,
        }
    }
}

fn is_taken(error: &io::Error) -> bool {
    // The second: bound, and the very same connection is still remembered.
    matches!(
        error.kind(),
        ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable
    )
}

/// Whether a socket hung up without an error. This happens once in many thousand connections that fail: `poll` reports the
/// end of the attempt, and the error is not there (yet).
fn is_without_result(error: &io::Error) -> bool {
    error.kind() == ErrorKind::Other && error.raw_os_error().is_none()
}

/// Connects from the next port.
///
/// # Errors
/// As those of `TcpStream::connect_timeout`.
pub(super) fn connect(target: SocketAddr, deadline: Duration) -> io::Result<TcpStream> {
    with_next(|port| {
        let socket = Socket::new(Domain::for_address(target), Type::STREAM, None)?;
        socket.bind(&any(target, port).into())?;
        socket.connect_timeout(&target.into(), deadline)?;
        Ok(socket.into())
    })
}

/// The unspecified address of a target's family, with this port.
pub(super) fn any(target: SocketAddr, port: u16) -> SocketAddr {
    match target {
        SocketAddr::V4(_) => SocketAddr::from(([0; 4], port)),
        SocketAddr::V6(_) => SocketAddr::from(([0; 16], port)),
    }
}

fn next() -> u16 {
    let next = |used: u16| Some((used + 1) % (PORTS.end - PORTS.start));
    let used = USED
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
        .unwrap_or(0);
    PORTS.start + used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_skipped_and_other_errors_are_returned_at_once() {
        let mut asked = Vec::new();
        let given = with_next(|port| {
            asked.push(port);
            if asked.len() < 3 {
                return Err(ErrorKind::AddrInUse.into());
            }
            Ok(port)
        })
        .unwrap();
        assert_eq!(asked.len(), 3);
        assert_eq!(Some(&given), asked.last());
        assert!(asked.iter().all(|port| PORTS.contains(port)));
        // Other tests take ports at the same time; each is given to one only.
        assert!(asked[0] != asked[1] && asked[1] != asked[2]);

        let mut acts = 0;
        let refused: io::Result<()> = with_next(|_| {
            acts += 1;
            Err(ErrorKind::ConnectionRefused.into())
        });
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(acts, 1);
    }

    #[test]
    fn what_takes_every_port_is_an_error_and_no_loop() {
        let taken: io::Result<()> = with_next(|_| Err(ErrorKind::AddrInUse.into()));
        assert_eq!(taken.unwrap_err().kind(), ErrorKind::AddrInUse);
    }
}
