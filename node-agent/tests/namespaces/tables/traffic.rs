//! Servers that tell who connected to them, and connections to them.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::world::Space;

/// Long enough for a busy machine, and for a few retransmissions.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Time after which a dropped packet counts as not answered.
const SILENCE: Duration = Duration::from_millis(700);

/// The ports of every pod.
pub(crate) const TCP_PORT: u16 = 8080;
pub(crate) const UDP_PORT: u16 = 5353;

/// The servers of a pod.
pub(crate) struct Servers {
    name: String,
    tcp: TcpListener,
    udp: UdpSocket,
    stop: Arc<AtomicBool>,
}

impl Servers {
    pub(crate) fn open(space: &Space, name: String, stop: &Arc<AtomicBool>) -> Self {
        let stop = stop.clone();
        space.inside(|| Self {
            name,
            tcp: TcpListener::bind(("::", TCP_PORT)).unwrap(),
            udp: UdpSocket::bind(("::", UDP_PORT)).unwrap(),
            stop,
        })
    }

    /// Starts threads that end some time after the pod.
    pub(crate) fn start(self, space: &Space) {
        let Self {
            name,
            tcp,
            udp,
            stop,
        } = self;
        let (other_name, other_stop) = (name.clone(), stop.clone());
        drop(space.start(move || serve_tcp(&name, &tcp, &stop)));
        drop(space.start(move || serve_udp(&other_name, &udp, &other_stop)));
    }
}

fn serve_tcp(name: &str, listener: &TcpListener, stop: &AtomicBool) {
    listener.set_nonblocking(true).unwrap();
    while !stop.load(Ordering::Relaxed) {
        let Ok((mut stream, from)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        let answer = answer(name, from);
        // A connection that asks for nothing stays open: each line is echoed after the answer.
        std::thread::spawn(move || {
            drop(stream.write_all(answer.as_bytes()));
            let mut buffer = [0; 64];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                if stream.write_all(&buffer[..length]).is_err() {
                    return;
                }
            }
        });
    }
}

fn serve_udp(name: &str, socket: &UdpSocket, stop: &AtomicBool) {
    let wait = Some(Duration::from_millis(200));
    socket.set_read_timeout(wait).unwrap();
    let mut buffer = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((_, from)) = socket.recv_from(&mut buffer) {
            drop(socket.send_to(answer(name, from).as_bytes(), from));
        }
    }
}

fn answer(name: &str, from: SocketAddr) -> String {
    format!("{name} {}\n", from.ip().to_canonical())
}

/// The pod that answered, and the client that it saw.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Answer {
    pub(crate) pod: String,
    pub(crate) peer: IpAddr,
}

impl Answer {
    fn parse(text: &str) -> Self {
        let (pod, peer) = text.trim().split_once(' ').unwrap();
        Self {
            pod: pod.to_owned(),
            peer: peer.parse().unwrap(),
        }
    }
}

/// Connects from the namespace of the calling thread.
pub(crate) fn tcp(to: &str) -> Result<Answer, ErrorKind> {
    connect(to, ANSWER_TIME).map(|(answer, _)| answer)
}

/// Connects and keeps the connection.
pub(crate) fn connect(to: &str, wait: Duration) -> Result<(Answer, TcpStream), ErrorKind> {
    let to: SocketAddr = to.parse().unwrap();
    let connected = || {
        let mut stream = TcpStream::connect_timeout(&to, wait)?;
        stream.set_read_timeout(Some(wait))?;
        let mut line = Vec::new();
        let mut byte = [0];
        while line.last() != Some(&b'\n') {
            stream.read_exact(&mut byte)?;
            line.extend(byte);
        }
        let text = String::from_utf8(line).map_err(std::io::Error::other)?;
        Ok((Answer::parse(&text), stream))
    };
    connected().map_err(|error: std::io::Error| error.kind())
}

/// Whether an open connection still works.
pub(crate) fn works(stream: &mut TcpStream) -> bool {
    let mut echo = [0; 5];
    stream.write_all(b"again").is_ok() && stream.read_exact(&mut echo).is_ok() && &echo == b"again"
}

/// Sends datagrams from a port (0 for any) until one is answered.
pub(crate) fn udp(from: u16, to: &str) -> Result<Answer, ErrorKind> {
    let to: SocketAddr = to.parse().unwrap();
    let any = if to.is_ipv4() { "0.0.0.0" } else { "::" };
    let socket = UdpSocket::bind((any, from)).unwrap();
    socket.connect(to).unwrap();
    let exchange = || {
        socket.set_read_timeout(Some(SILENCE))?;
        let mut buffer = [0; 64];
        let mut attempts = 0;
        loop {
            socket.send(b"?")?;
            match socket.recv(&mut buffer) {
                Ok(length) => {
                    let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                    return Ok(Answer::parse(&text));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock && attempts < 4 => {
                    attempts += 1;
                }
                Err(error) => return Err(error),
            }
        }
    };
    exchange().map_err(|error: std::io::Error| error.kind())
}

/// Whether nothing answers: packets are dropped, not refused.
pub(crate) fn is_silent(to: &str) -> bool {
    let kind = connect(to, SILENCE).map(drop);
    matches!(kind, Err(ErrorKind::TimedOut | ErrorKind::WouldBlock))
}
