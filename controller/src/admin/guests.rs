//! A limit on the number of connections. At the limit, the address with the most connections gives one up, and other
//! addresses take no place from a node: a flood must not end a health check of the kubelet, which then would restart
//! the controller.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::{Pages, Visitor};
use crate::room::Room;

/// Maximum number of open connections to the admin pages from this host and addresses of nodes, and from all others.
const MAX_CONNECTIONS: usize = 64;
/// Timeout for the first byte, for the TLS handshake, and for each request head, which includes the idle time between
/// requests.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum size of a request head, in bytes. The head contains the token.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// The first byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// The open connections.
#[derive(Debug)]
pub(super) struct Guests {
    of_nodes: Arc<Room>,
    of_others: Arc<Room>,
}

impl Guests {
    /// No connections.
    pub(super) fn new() -> Self {
        Self {
            of_nodes: Room::new(MAX_CONNECTIONS),
            of_others: Room::new(MAX_CONNECTIONS),
        }
    }

    /// Serves a connection as a task of `tasks`. It ends when `tasks` is dropped, or when its place is needed for
    /// others. Without a place it is closed at once.
    pub(super) fn welcome(
        &self,
        stream: TcpStream,
        visitor: Visitor,
        pages: &Arc<Pages>,
        tasks: &mut JoinSet<()>,
    ) {
        let room = if is_here(&stream, visitor) || pages.store.is_node_address(visitor.address) {
            &self.of_nodes
        } else {
            &self.of_others
        };
        let Some(mut seat) = room.take(Some(visitor.address)) else {
            return;
        };
        let served = serve(stream, visitor, pages.clone());
        tasks.spawn(async move {
            tokio::select! {
                () = served => {}
                () = seat.evicted() => {}
            }
        });
    }
}

/// Whether the client is on this host, as the kubelet is: it then connects from the address to which it connects.
fn is_here(stream: &TcpStream, visitor: Visitor) -> bool {
    let own = stream.local_addr();
    own.is_ok_and(|own| own.ip().to_canonical() == visitor.address)
}

/// Serves TLS if the first byte is that of a TLS handshake, and plain HTTP otherwise.
async fn serve(stream: TcpStream, visitor: Visitor, pages: Arc<Pages>) {
    let mut first = [0];
    let Ok(Ok(1..)) = timeout(READ_TIMEOUT, stream.peek(&mut first)).await else {
        return;
    };
    match pages.tls.clone().filter(|_| first == [TLS_HANDSHAKE]) {
        None => talk(stream, visitor, pages).await,
        Some(tls) => {
            let begun = timeout(READ_TIMEOUT, TlsAcceptor::from(tls).accept(stream)).await;
            if let Ok(Ok(io)) = begun {
                let private = true;
                talk(io, Visitor { private, ..visitor }, pages).await;
            }
        }
    }
}

async fn talk(io: impl AsyncRead + AsyncWrite + Send + Unpin, visitor: Visitor, pages: Arc<Pages>) {
    let answer = |request: Request<Incoming>| {
        let pages = pages.clone();
        async move { Ok::<_, Infallible>(pages.answer(&request, visitor).await) }
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(READ_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(io), service_fn(answer));
    // An error concerns this client only.
    drop(connection.await);
}
