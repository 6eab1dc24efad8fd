//! Accepts connections, with or without TLS, within a time limit and a maximum number, so that slow or silent clients
//! do not block others.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;

use super::connection::{Connection, Io, Peer, with_first};
use super::listen::Socket;
use crate::auth::{Gate, Reason, Refusal, Refusals};
use crate::open_files::{AcceptErrors, Place, Places};
use crate::telemetry::load::ListenerName;
use crate::telemetry::metrics::Counters;

/// Timeout of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of concurrent handshakes. In a large cluster, 5,000 agents reconnect at once.
const MAX_HANDSHAKES: usize = 1024;
/// Time that each handshake has even at the maximum. After it, the oldest one is dropped.
const MIN_HANDSHAKE_TIME: Duration = Duration::from_secs(2);
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
        }
    }

    /// Accepts connections from a socket until the receiver is dropped.
    pub(super) fn receive(self, socket: Socket) -> mpsc::Receiver<io::Result<Connection>> {
        let (ready, connections) = mpsc::channel(QUEUE_CAPACITY);
        tokio::spawn(self.accept_all(socket, ready));
        connections
    }

    async fn accept_all(self, socket: Socket, ready: mpsc::Sender<io::Result<Connection>>) {
        let mut under_way = UnderWay::default();
        let mut errors = AcceptErrors::new(ListenerName::agents, self.counters.clone());
        loop {
            tokio::select! {
                () = ready.closed() => return,
                gone = under_way.reap() => if let Some(from) = gone {
                    let seconds = MIN_HANDSHAKE_TIME.as_secs();
                    let message = format!("the client sent nothing within {seconds} s, and others wait");
                    self.refusals.note(&from, &Refusal::new(Reason::silent, message));
                },
                accepted = socket.accept(), if under_way.has_room() => match accepted {
                    Ok((io, from)) => if let Some(place) = self.place(&from) {
                        let beginning = self.clone().begin(io, from.clone(), place, ready.clone());
                        under_way.begin(from, beginning);
                    },
                    Err(error) => sleep(errors.note(&error)).await,
                },
            }
        }
    }

    /// A place for a connection. Without one the connection is closed at once, and the agent tries another controller.
    fn place(&self, from: &str) -> Option<Place> {
        let place = self.places.take();
        if place.is_none() {
            let message = format!(
                "all {} connections that the limit of open files allows are in use; raise the limit, or run more \
                 controllers",
                self.places.count()
            );
            let refusal = Refusal::new(Reason::full, message);
            self.refusals.note(from, &refusal);
        }
        place
    }

    async fn begin(
        self,
        io: Box<dyn Io>,
        from: String,
        place: Place,
        ready: mpsc::Sender<io::Result<Connection>>,
    ) {
        let begun = timeout(HANDSHAKE_TIMEOUT, self.handshake(io, &from)).await;
        let silent = || {
            let message = format!(
                "the client sent nothing within {} s",
                HANDSHAKE_TIMEOUT.as_secs()
            );
            Refusal::new(Reason::silent, message)
        };
        match begun.unwrap_or_else(|_| Err(silent())) {
            Ok(Some((io, plain))) => {
                let peer = Peer::new(from, plain, matches!(self.gate, Gate::Open));
                let connection = Connection::new(io, peer, self.counters.bytes(), place);
                // The receiver is dropped when the server ends.
                drop(ready.send(Ok(connection)).await);
            }
            Ok(None) => {}
            Err(refusal) => self.refusals.note(&from, &refusal),
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

/// Handshakes in progress, oldest first.
#[derive(Default)]
struct UnderWay {
    tasks: JoinSet<()>,
    since: VecDeque<Beginning>,
}

struct Beginning {
    from: String,
    since: Instant,
    task: AbortHandle,
}

impl UnderWay {
    fn begin(&mut self, from: String, beginning: impl Future<Output = ()> + Send + 'static) {
        let task = self.tasks.spawn(beginning);
        let since = Instant::now();
        self.since.push_back(Beginning { from, since, task });
    }

    fn has_room(&self) -> bool {
        self.tasks.len() < MAX_HANDSHAKES
    }

    /// Waits until a handshake has ended. At the maximum, drops the oldest one that has had enough time, and returns
    /// its address.
    async fn reap(&mut self) -> Option<String> {
        while self
            .since
            .front()
            .is_some_and(|first| first.task.is_finished())
        {
            self.since.pop_front();
        }
        let first = self.since.front().filter(|_| !self.has_room());
        let due = first.map(|first| first.since + MIN_HANDSHAKE_TIME);
        let due = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(_) = self.tasks.join_next() => None,
            () = due => {
                let first = self.since.pop_front()?;
                first.task.abort();
                Some(first.from)
            }
        }
    }
}
