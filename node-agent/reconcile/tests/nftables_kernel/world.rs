//! A node with two pods and a host outside, each in a network namespace, for both families.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use netlink_blocking::testing::runner::output_of;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;
use portolan_plan::Family;
use socket2::{Domain, Socket, Type};

/// The port of the servers in pods.
pub(crate) const POD_PORT: u16 = 8080;

/// How long a client waits. Nothing here takes more than some milliseconds, but the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(3);

type Work = Box<dyn FnOnce() + Send>;

/// A network namespace with a thread in it.
pub(crate) struct Namespace {
    work: Sender<Work>,
    thread: i32,
}

impl Namespace {
    fn new() -> Self {
        let (work, received) = channel::<Work>();
        let (ready, started) = channel();
        std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            ready.send(gettid().as_raw()).expect("the test waits");
            for work in received {
                work();
            }
        });
        let thread = started.recv().expect("the thread runs");
        Self { work, thread }
    }

    /// Runs a function in the namespace.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        function: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let (done, result) = channel();
        let work = move || done.send(function()).unwrap_or_default();
        self.work.send(Box::new(work)).expect("the thread runs");
        result.recv().expect("the function does not panic")
    }
}

/// The node is the namespace of the test's own thread.
pub(crate) struct World {
    pub(crate) pods: [Namespace; 2],
    pub(crate) outside: Namespace,
}

/// The last part of the pods' addresses.
pub(crate) const PODS: [u8; 2] = [5, 6];

fn ip(command: &str) {
    output_of("ip", &command.split_whitespace().collect::<Vec<_>>());
}

fn set(setting: &str, value: &str) {
    let path = format!("/proc/sys/net/{setting}");
    std::fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// An address of this node's pods.
pub(crate) fn pod(family: Family, last: u8) -> IpAddr {
    match family {
        Family::Ipv4 => [10, 244, 1, last].into(),
        Family::Ipv6 => [0xfd00, 0x10, 0x244, 1, 0, 0, 0, last.into()].into(),
    }
}

/// An address of the network of nodes: 1 is this node, 9 and 10 are outside.
pub(crate) fn lan(family: Family, last: u8) -> IpAddr {
    match family {
        Family::Ipv4 => [192, 168, 50, last].into(),
        Family::Ipv6 => [0xfd00, 0x50, 0, 0, 0, 0, 0, last.into()].into(),
    }
}

impl World {
    pub(crate) fn new() -> Self {
        ip("link set lo up");
        for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            set(setting, "1");
        }
        let outside = Namespace::new();
        ip(&format!(
            "link add eth0 type veth peer name eth0 netns {}",
            outside.thread
        ));
        ip("link set eth0 up");
        ip("address add 192.168.50.1/24 dev eth0");
        ip("address add fd00:50::1/64 dev eth0 nodad");
        outside.run(|| {
            ip("link set lo up");
            ip("link set eth0 up");
            for last in [9, 10] {
                let [v4, v6] = Family::BOTH.map(|family| lan(family, last));
                ip(&format!("address add {v4}/24 dev eth0"));
                ip(&format!("address add {v6}/64 dev eth0 nodad"));
            }
            ip("route add default via 192.168.50.1");
            ip("route add default via fd00:50::1");
        });
        ip("route add default via 192.168.50.9");
        ip("route add default via fd00:50::9");
        let pods = PODS.map(Self::pod);
        Self { pods, outside }
    }

    fn pod(last: u8) -> Namespace {
        let namespace = Namespace::new();
        ip(&format!(
            "link add pod{last} type veth peer name eth0 netns {}",
            namespace.thread
        ));
        ip(&format!("link set pod{last} up"));
        ip(&format!(
            "address add 10.244.1.1 peer 10.244.1.{last} dev pod{last}"
        ));
        ip(&format!(
            "address add fd00:10:244:1::1/128 dev pod{last} nodad"
        ));
        ip(&format!("route add fd00:10:244:1::{last} dev pod{last}"));
        namespace.run(move || {
            ip("link set lo up");
            ip("link set eth0 up");
            ip(&format!("address add 10.244.1.{last}/32 dev eth0"));
            ip(&format!(
                "address add fd00:10:244:1::{last}/128 dev eth0 nodad"
            ));
            ip("route add 10.244.1.1 dev eth0");
            ip("route add default via 10.244.1.1");
            ip("route add fd00:10:244:1::1 dev eth0");
            ip("route add default via fd00:10:244:1::1");
            for family in Family::BOTH {
                serve(pod(family, last));
            }
        });
        namespace
    }
}

/// Answers with its own address and that of the client, on TCP and UDP.
pub(crate) fn serve(address: IpAddr) {
    let listener = TcpListener::bind((address, POD_PORT)).expect("a listener");
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let text = answer(address, client.peer_addr().map(|peer| peer.ip()));
            client.write_all(text.as_bytes()).ok();
        }
    });
    let socket = UdpSocket::bind((address, POD_PORT)).expect("a socket");
    std::thread::spawn(move || {
        while let Ok((_, peer)) = socket.recv_from(&mut [0; 16]) {
            let text = answer(address, Ok(peer.ip()));
            socket.send_to(text.as_bytes(), peer).ok();
        }
    });
}

fn answer(server: IpAddr, client: std::io::Result<IpAddr>) -> String {
    format!("{server} {}", client.expect("a client has an address"))
}

/// What a client learned of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reached {
    /// This server, which saw the client with this address.
    Server {
        server: IpAddr,
        client: IpAddr,
    },
    Refused,
    Nothing,
}

fn reached(text: &str) -> Reached {
    let (server, client) = text.split_once(' ').expect("two addresses");
    Reached::Server {
        server: server.parse().unwrap(),
        client: client.parse().unwrap(),
    }
}

/// Connects by TCP, from an address of this namespace if one is given.
pub(crate) fn connect(to: SocketAddr, from: Option<IpAddr>) -> Reached {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
    if let Some(from) = from {
        socket
            .bind(&SocketAddr::new(from, 0).into())
            .expect("an own address");
    }
    match socket.connect_timeout(&to.into(), PATIENCE) {
        Ok(()) => {
            let mut text = String::new();
            let mut stream = TcpStream::from(socket);
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.read_to_string(&mut text).expect("an answer");
            reached(&text)
        }
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Reached::Refused,
        Err(_) => Reached::Nothing,
    }
}

/// Sends a datagram and waits for an answer.
pub(crate) fn send(to: SocketAddr) -> Reached {
    let any = match to {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    let socket = UdpSocket::bind(any).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(to).expect("a route");
    let mut buffer = [0; 128];
    // The node's own packet is refused within the call, and the ICMP error follows at once.
    let sent = socket.send(b"hello");
    let is_refused = |error: &std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
    if let Err(error) = sent.as_ref() {
        assert!(is_refused(error), "{to}: {error}");
    }
    match socket.recv(&mut buffer) {
        Ok(length) => reached(std::str::from_utf8(&buffer[..length]).unwrap()),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Reached::Refused,
        Err(_) => Reached::Nothing,
    }
}
