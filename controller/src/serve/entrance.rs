//! How connections begin: with TLS or without, within a time, and bounded, so that a client that is slow
//! or says nothing holds up nobody.

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
use crate::metrics::Counters;
use crate::trust::{Gate, Reason, Refusal, Refusals};

/// How long a client may take for TLS.
const PATIENCE: Duration = Duration::from_secs(10);
/// Beginnings under way at once; a large cluster comes back with 5,000 agents.
const MOST: usize = 1024;
/// Who had as long as this makes room when there are as many.
const ENOUGH: Duration = Duration::from_secs(2);
/// Connections that wait to be served.
const QUEUE: usize = 64;
/// A pause when no connection can be taken: there are too many open files.
const BREATH: Duration = Duration::from_millis(100);
/// The first byte that a TLS client sends.
const TLS: u8 = 0x16;
/// What a TLS client is told where TLS is not spoken. It is no TLS, which the client's library says.
const NO_TLS: &[u8] = b"this port speaks no TLS\n";

/// How agents come in.
#[derive(Debug, Clone)]
pub struct Entrance {
    tls: Option<Arc<ServerConfig>>,
    pub(super) gate: Gate,
    pub(super) counters: Arc<Counters>,
    pub(super) refusals: Arc<Refusals>,
}

impl Entrance {
    /// Without TLS, for whoever comes.
    pub(super) fn open(counters: Arc<Counters>) -> Self {
        Self::new(None, Gate::Open, counters)
    }

    /// With TLS, for those whom the gate lets in.
    pub fn secure(tls: Arc<ServerConfig>, gate: Gate, counters: Arc<Counters>) -> Self {
        Self::new(Some(tls), gate, counters)
    }

    fn new(tls: Option<Arc<ServerConfig>>, gate: Gate, counters: Arc<Counters>) -> Self {
        Self {
            tls,
            gate,
            refusals: Arc::new(Refusals::new(counters.clone())),
            counters,
        }
    }

    /// Begins connections of a socket as long as somebody takes them.
    pub(super) fn receive(self, socket: Socket) -> mpsc::Receiver<io::Result<Connection>> {
        let (ready, connections) = mpsc::channel(QUEUE);
        tokio::spawn(self.accept_all(socket, ready));
        connections
    }

    async fn accept_all(self, socket: Socket, ready: mpsc::Sender<io::Result<Connection>>) {
        let mut under_way = UnderWay::default();
        loop {
            tokio::select! {
                () = ready.closed() => return,
                gone = under_way.reap() => if let Some(from) = gone {
                    let message = format!("nothing came within {} s, and others wait", ENOUGH.as_secs());
                    self.refusals.note(&from, &Refusal::new(Reason::silent, message));
                },
                accepted = socket.accept(), if under_way.has_room() => match accepted {
                    Ok((io, from)) => {
                        let beginning = self.clone().begin(io, from.clone(), ready.clone());
                        under_way.begin(from, beginning);
                    }
                    Err(_) => sleep(BREATH).await,
                },
            }
        }
    }

    async fn begin(
        self,
        io: Box<dyn Io>,
        from: String,
        ready: mpsc::Sender<io::Result<Connection>>,
    ) {
        let begun = timeout(PATIENCE, self.handshake(io, &from)).await;
        let silent = || {
            let message = format!("nothing came within {} s", PATIENCE.as_secs());
            Refusal::new(Reason::silent, message)
        };
        match begun.unwrap_or_else(|_| Err(silent())) {
            Ok(Some((io, plain))) => {
                let peer = Peer::new(from, plain, matches!(self.gate, Gate::Open));
                let connection = Connection::new(io, peer, self.counters.bytes());
                // Nobody takes it when the server ends.
                drop(ready.send(Ok(connection)).await);
            }
            Ok(None) => {}
            Err(refusal) => self.refusals.note(&from, &refusal),
        }
    }

    /// The connection after TLS, and whether it speaks none where it should; nothing of who went away.
    async fn handshake(
        &self,
        mut io: Box<dyn Io>,
        from: &str,
    ) -> Result<Option<(Box<dyn Io>, bool)>, Refusal> {
        let Ok(first) = io.read_u8().await else {
            return Ok(None);
        };
        let io = with_first(first, io);
        match (&self.tls, first == TLS) {
            (Some(config), true) => {
                let begun = TlsAcceptor::from(config.clone()).accept(io).await;
                let io = begun.map_err(|error| failed(&error))?;
                Ok(Some((Box::new(io), false)))
            }
            // It is told in its own language, gRPC, by who serves it.
            (Some(_), false) => Ok(Some((Box::new(io), true))),
            (None, false) => Ok(Some((Box::new(io), false))),
            (None, true) => {
                let mut io = io;
                // Whether it reads this is its own affair.
                drop(io.write_all(NO_TLS).await);
                drop(io.shutdown().await);
                let refusal = Refusal::new(
                    Reason::no_tls_here,
                    "it speaks TLS, and this controller was started with --insecure: start the agent \
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
        io::ErrorKind::UnexpectedEof => "it went away during the TLS handshake".into(),
        _ => format!(
            "TLS: {error}; the log of the agent says what it does not like: see its --controller-ca and \
             --controller-name"
        ),
    };
    Refusal::new(Reason::handshake, message)
}

/// Connections that begin, from the first to the last who came.
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
        self.tasks.len() < MOST
    }

    /// Waits until one has ended. Where there is no room, the first who had time enough goes, and it is
    /// told who that was.
    async fn reap(&mut self) -> Option<String> {
        while self
            .since
            .front()
            .is_some_and(|first| first.task.is_finished())
        {
            self.since.pop_front();
        }
        let first = self.since.front().filter(|_| !self.has_room());
        let due = first.map(|first| first.since + ENOUGH);
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
