//! A client that keeps its port: every datagram of it belongs to the same flow.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::client::{Outcome, QUESTION, left, understand, understand_error};
use super::port;
use crate::namespace::Namespace;

/// A UDP socket that sends to one target only.
#[derive(Debug)]
pub struct Sender {
    socket: UdpSocket,
    target: SocketAddr,
}

impl Sender {
    /// Opens one in a namespace; it may be used outside.
    ///
    /// # Errors
    /// When there is no route to the target.
    pub fn open(namespace: &Namespace, target: SocketAddr) -> Result<Self> {
        let socket = namespace.inside(|| {
            let socket = port::with_next(|port| UdpSocket::bind(port::any(target, port)))?;
            socket.connect(target)?;
            Ok(socket)
        });
        let socket = socket.with_context(|| format!("open a sender to {target}"))?;
        Ok(Self { socket, target })
    }

    /// Where it sends from.
    ///
    /// # Errors
    /// Never while the socket is open.
    pub fn source(&self) -> Result<SocketAddr> {
        Ok(self.socket.local_addr()?)
    }

    /// Where it sends to.
    #[must_use]
    pub fn target(&self) -> SocketAddr {
        self.target
    }

    /// Sends a datagram and waits for nothing.
    ///
    /// # Errors
    /// When it cannot be sent.
    pub fn send(&self) -> Result<()> {
        self.forget_answers()?;
        self.socket
            .send(QUESTION)
            .with_context(|| format!("send to {}", self.target))?;
        Ok(())
    }

    /// Sends a datagram and waits for the answer to it: what came before does not count.
    ///
    /// # Errors
    /// When the socket itself fails.
    pub fn ask(&self, deadline: Duration) -> Result<Outcome> {
        self.ask_with(QUESTION, deadline)
    }

    /// As [`Sender::ask`], with a datagram of this content.
    ///
    /// # Errors
    /// As of [`Sender::ask`].
    pub fn ask_with(&self, question: &[u8], deadline: Duration) -> Result<Outcome> {
        self.forget_answers()?;
        let start = Instant::now();
        if let Err(error) = self.socket.send(question) {
            return Ok(understand_error(&error));
        }
        self.socket.set_read_timeout(Some(left(start, deadline)))?;
        let mut buffer = [0; 512];
        Ok(match self.socket.recv(&mut buffer) {
            Ok(length) => understand(&String::from_utf8_lossy(&buffer[..length])),
            Err(error) => understand_error(&error),
        })
    }

    fn forget_answers(&self) -> Result<()> {
        self.socket.set_nonblocking(true)?;
        // ICMP errors about earlier datagrams are answers, too.
        loop {
            match self.socket.recv(&mut [0; 512]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Ok(_) | Err(_) => {}
            }
        }
        Ok(self.socket.set_nonblocking(false)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_an_earlier_datagram_is_not_taken_for_one_to_the_last() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = server.local_addr().unwrap();
        socket.connect(target).unwrap();
        let sender = Sender { socket, target };
        sender.send().unwrap();
        let (_, peer) = server.recv_from(&mut [0; 64]).unwrap();
        assert_eq!(peer, sender.source().unwrap());
        server.send_to(b"pod-a1 127.0.0.1 1", peer).unwrap();
        let outcome = sender.ask(Duration::from_millis(50)).unwrap();
        assert_eq!(outcome, Outcome::Silent);
    }
}
