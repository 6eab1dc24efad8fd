//! Accepts connections, with or without TLS, within limits of time, rate and number, so that slow, silent or many
//! clients do not block others.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::connection::{Connection, Io, Origin, Peer, with_first};
use super::listen::Socket;
use crate::auth::{Gate, Reason, Refusal, Refusals};
use crate::bucket::{Bucket, Rate, Shares};
use crate::open_files::{AcceptErrors, Place, Places};
use crate::room::{Room, Seat};
use crate::store::Store;
use crate::telemetry::load::ListenerName;
use crate::telemetry::metrics::Counters;

/// Timeout of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of connections without an admitted stream. In a large cluster, 5,000 agents reconnect at once, and up
/// to 700 of them wait for token reviews.
const MAX_STRANGERS: usize = 1024;
/// Connections accepted from one address: per second, and at once. Each costs a TLS handshake, and all agents may be
/// behind one address.
const ACCEPTS_PER_ADDRESS: Rate = Rate::new(200, 500);
/// Connections accepted from all addresses that are not those of nodes. A handshake costs about 0.3 ms of a processor.
const ACCEPTS_OF_OTHERS: Rate = Rate::new(400, 1000);
/// Capacity of the queue of connections that completed the handshake.
const QUEUE_CAPACITY: usize = 64;
/// The first byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;
/// The answer to TLS clients on a port without TLS. It is not TLS, which the client's library reports.
const NO_TLS: &[u8] = b"this port does not use TLS\n";

/// Accepts agents.
#[derive(Debug, Clone)]
pub struct Entrance {
    tls: Option<Arc<ServerConfig>>,
    pub(super) gate: Gate,
    pub(super) counters: Arc<Counters>,
    pub(super) refusals: Arc<Refusals>,
    pub(super) places: Places,
    /// The plans, for the addresses of nodes.
    store: Arc<Store>,
    /// The places of connections without an admitted stream: of addresses of nodes, and of all others. Others can take
    /// no place from a node.
    of_nodes: Arc<Room>,
    of_others: Arc<Room>,
    accepts: Arc<Mutex<Accepts>>,
}

/// The rates of connections.
#[derive(Debug)]
struct Accepts {
    of_address: Shares<IpAddr>,
    of_others: Bucket,
}

impl Entrance {
    /// Without TLS, for every client.
    pub(super) fn open(counters: Arc<Counters>) -> Self {
        Self::new(None, Gate::Open, counters)
    }

    /// With TLS, for clients that the gate admits.
    pub fn secure(tls: Arc<ServerConfig>, gate: Gate, counters: Arc<Counters>) -> Self {
        Self::new(Some(tls), gate, counters)
    }

    fn new(tls: Option<Arc<ServerConfig>>, gate: Gate, counters: Arc<Counters>) -> Self {
        Self {
            tls,
            gate,
            refusals: Arc::new(Refusals::new(counters.clone())),
            counters,
            places: Places::default(),
            store: Arc::default(),
            of_nodes: Room::new(MAX_STRANGERS),
            of_others: Room::new(MAX_STRANGERS),
            accepts: Arc::new(Mutex::new(Accepts {
                of_address: Shares::new(ACCEPTS_PER_ADDRESS, Duration::ZERO),
                of_others: ACCEPTS_OF_OTHERS.bucket(Duration::ZERO),
            })),
        }
    }

    /// With the addresses of the nodes in these plans.
    pub(super) fn with_store(self, store: Arc<Store>) -> Self {
        Self { store, ..self }
    }

    /// With this number of connections in all, of which strangers take a part only.
    pub(super) fn with_places(self, places: Places) -> Self {
        let part = usize::try_from(places.count() / 8).unwrap_or(MAX_STRANGERS);
        let strangers = part.clamp(1, MAX_STRANGERS);
        Self {
            places,
            of_nodes: Room::new(strangers),
            of_others: Room::new(strangers),
            ..self
        }
    }

    /// Whether agents have to authenticate.
    pub(super) fn authenticates(&self) -> bool {
        !matches!(self.gate, Gate::Open)
    }

    /// Accepts connections from a socket until the receiver is dropped.
    pub(super) fn receive(self, socket: Socket) -> mpsc::Receiver<io::Result<Connection>> {
        let (ready, connections) = mpsc::channel(QUEUE_CAPACITY);
        tokio::spawn(self.accept_all(socket, ready));
        connections
    }

    async fn accept_all(self, socket: Socket, ready: mpsc::Sender<io::Result<Connection>>) {
        // Dropped with all that has not completed the handshake.
        let mut beginnings = JoinSet::new();
        let mut errors = AcceptErrors::new(ListenerName::agents, self.counters.clone());
        loop {
            tokio::select! {
                () = ready.closed() => return,
                Some(_) = beginnings.join_next() => {}
                accepted = socket.accept() => match accepted {
                    Ok((io, origin)) => match self.places(&origin) {
                        Ok(places) => {
                            beginnings.spawn(self.clone().begin(io, origin, places, ready.clone()));
                        }
                        Err(refusal) => self.refusals.note(&origin.text, &refusal),
                    },
                    Err(error) => sleep(errors.note(&error)).await,
                },
            }
        }
    }

    /// The places for a new connection; without them the connection is closed at once.
    fn places(&self, origin: &Origin) -> Result<(Seat, Place), Refusal> {
        let file = self.places.take().ok_or_else(|| {
            let message = format!(
                "all {} connections that the limit of open files allows are in use; raise the limit, or run more \
                 controllers",
                self.places.count()
            );
            Refusal::new(Reason::full, message)
        })?;
        Ok((self.seat(origin)?, file))
    }

    fn seat(&self, origin: &Origin) -> Result<Seat, Refusal> {
        let is_node = |address: IpAddr| self.store.is_node_address(address);
        let is_node = origin.address.is_some_and(is_node);
        if let Some(address) = origin.address {
            self.may_begin(address, is_node)?;
        }
        let room = if is_node {
            &self.of_nodes
        } else {
            &self.of_others
        };
        room.take(origin.address).ok_or_else(|| {
            Refusal::new(
                Reason::busy,
                "too many clients connect at once; retry in some seconds",
            )
        })
    }

    /// Takes a connection from the rates.
    fn may_begin(&self, address: IpAddr, is_node: bool) -> Result<(), Refusal> {
        let mut accepts = self.accepts.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now().into_std();
        if accepts.of_address.take(&address, now).is_none() {
            let a_second = ACCEPTS_PER_ADDRESS.a_second;
            let message = format!("more than {a_second} connections a second from this address");
            return Err(Refusal::new(Reason::too_many, message));
        }
        if !is_node && accepts.of_others.take(now).is_none() {
            let a_second = ACCEPTS_OF_OTHERS.a_second;
            let message = format!(
                "more than {a_second} connections a second from addresses that are not those of nodes; retry in some \
                 seconds"
            );
            return Err(Refusal::new(Reason::busy, message));
        }
        Ok(())
    }

    async fn begin(
        self,
        io: Box<dyn Io>,
        origin: Origin,
        (mut seat, file): (Seat, Place),
        ready: mpsc::Sender<io::Result<Connection>>,
    ) {
        let silent = |words: &str| {
            let message = format!("the client did not complete the handshake {words}");
            Refusal::new(Reason::silent, message)
        };
        let begun = tokio::select! {
            begun = timeout(HANDSHAKE_TIMEOUT, self.handshake(io, &origin.text)) => {
                let within = format!("within {} s", HANDSHAKE_TIMEOUT.as_secs());
                begun.unwrap_or_else(|_| Err(silent(&within)))
            }
            () = seat.evicted() => Err(silent("while others waited for its place")),
        };
        match begun {
            Ok(Some((io, plain))) => {
                let peer = Peer::new(origin, plain, self.authenticates());
                let connection = Connection::new(io, peer, self.counters.bytes(), (seat, file));
                // The receiver is dropped when the server ends.
                drop(ready.send(Ok(connection)).await);
            }
            Ok(None) => {}
            Err(refusal) => self.refusals.note(&origin.text, &refusal),
        }
    }

    /// The connection after TLS, and whether the client wrongly uses none; `None` if the client went away.
    async fn handshake(
        &self,
        mut io: Box<dyn Io>,
        from: &str,
    ) -> Result<Option<(Box<dyn Io>, bool)>, Refusal> {
        let Ok(first) = io.read_u8().await else {
            return Ok(None);
        };
        let io = with_first(first, io);
        match (&self.tls, first == TLS_HANDSHAKE) {
            (Some(config), true) => {
                let begun = TlsAcceptor::from(config.clone()).accept(io).await;
                let io = begun.map_err(|error| failed(&error))?;
                Ok(Some((Box::new(io), false)))
            }
            // The service rejects it with a gRPC status, which the client can read.
            (Some(_), false) => Ok(Some((Box::new(io), true))),
            (None, false) => Ok(Some((Box::new(io), false))),
            (None, true) => {
                let mut io = io;
                // Ignored: the client may not read it.
                drop(io.write_all(NO_TLS).await);
                drop(io.shutdown().await);
                let refusal = Refusal::new(
                    Reason::no_tls_here,
                    "the client uses TLS, but this controller was started with --insecure: start the agent \
                     with --insecure, or the controller with --tls-cert or --tls-secret",
                );
                self.refusals.note(from, &refusal);
                Ok(None)
            }
        }
    }
}

fn failed(error: &io::Error) -> Refusal {
    let message = match error.kind() {
        io::ErrorKind::UnexpectedEof => "the client went away during the TLS handshake".into(),
        _ => format!(
            "TLS: {error}; the log of the agent has the reason: check its --controller-ca and \
             --controller-name"
        ),
    };
    Refusal::new(Reason::handshake, message)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use tokio::net::{TcpListener, TcpSocket, TcpStream};

    use super::*;

    /// Timeout of every wait; reaching it is a failure.
    const LIMIT: Duration = Duration::from_secs(20);

    /// A connection from this address of the loopback network.
    async fn connect(from: u8, to: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        let from = Ipv4Addr::new(127, 0, 0, from);
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        socket.connect(to).await.unwrap()
    }

    fn is_closed(stream: &TcpStream) -> bool {
        let read = stream.try_read(&mut [0]);
        !read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// S-232: more silent connections from one address than there are places.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn silent_connections_of_one_address_give_way_to_a_client_at_another() {
        let mut entrance = Entrance::open(Arc::default());
        entrance.of_others = Room::new(8);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut connections = entrance.receive(Socket::Tcp(listener));
        let mut silent = Vec::new();
        for _ in 0..20 {
            silent.push(connect(2, address).await);
        }
        let mut honest = connect(1, address).await;
        honest.write_all(b"PRI").await.unwrap();
        let accepted = timeout(LIMIT, connections.recv()).await.unwrap();
        let accepted = accepted.expect("a connection");
        // Those without a place are closed, and one that had a place.
        let closed = async {
            while silent.iter().filter(|stream| is_closed(stream)).count() < 13 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(LIMIT, closed).await.expect("closed connections");
        assert!(accepted.is_ok() && !is_closed(&honest));
    }

    #[tokio::test(start_paused = true)]
    async fn connections_of_one_address_have_a_rate() {
        let entrance = Entrance::open(Arc::default());
        let seats = |last: Option<u8>| {
            let address = last.map(|last| IpAddr::from([10, 0, 0, last]));
            let text = "test".into();
            let origin = Origin { address, text };
            let burst = ACCEPTS_PER_ADDRESS.burst;
            // Each place is free again at once.
            let seats = (0..2 * burst).map(|_| entrance.seat(&origin).map(drop));
            let refused = seats.filter_map(Result::err);
            refused.map(|refusal| refusal.reason).collect::<Vec<_>>()
        };
        assert_eq!(seats(Some(1)), [Reason::too_many; 500]);
        assert_eq!(seats(Some(2)).len(), 500, "another has a rate of its own");
        assert!(seats(None).is_empty(), "a Unix socket has no addresses");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(seats(Some(1)).len(), 800);
    }
}
