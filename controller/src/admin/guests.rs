//! A limit on the number of connections. At the limit, a new connection replaces the oldest one.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::Pages;

/// Maximum number of open connections to the admin pages. A further one replaces the oldest.
const MAX_CONNECTIONS: usize = 64;
/// Timeout for the first byte, for the TLS handshake, and for each request head, which includes the idle time between
/// requests.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum size of a request head, in bytes. The head contains the token.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// The first byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// The open connections.
#[derive(Debug, Default)]
pub(super) struct Guests {
    /// The oldest connection first.
    here: Mutex<VecDeque<AbortHandle>>,
}

impl Guests {
    /// Serves a connection as a task of `tasks`. It ends when `tasks` is dropped.
    pub(super) fn welcome(
        &self,
        stream: TcpStream,
        pages: &Arc<Pages>,
        local: bool,
        tasks: &mut JoinSet<()>,
    ) {
        let guest = tasks.spawn(serve(stream, pages.clone(), local));
        let mut here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        here.retain(|guest| !guest.is_finished());
        if here.len() >= MAX_CONNECTIONS
            && let Some(first) = here.pop_front()
        {
            first.abort();
        }
        here.push_back(guest);
    }
}

/// Serves TLS if the first byte is that of a TLS handshake, and plain HTTP otherwise.
async fn serve(stream: TcpStream, pages: Arc<Pages>, local: bool) {
    let mut first = [0];
    let Ok(Ok(1..)) = timeout(READ_TIMEOUT, stream.peek(&mut first)).await else {
        return;
    };
    match pages.tls.clone().filter(|_| first == [TLS_HANDSHAKE]) {
        None => talk(stream, pages, local).await,
        Some(tls) => {
            let begun = timeout(READ_TIMEOUT, TlsAcceptor::from(tls).accept(stream)).await;
            if let Ok(Ok(io)) = begun {
                talk(io, pages, true).await;
            }
        }
    }
}

async fn talk(io: impl AsyncRead + AsyncWrite + Send + Unpin, pages: Arc<Pages>, private: bool) {
    let answer = |request: Request<Incoming>| {
        let pages = pages.clone();
        async move { Ok::<_, Infallible>(pages.answer(&request, private).await) }
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(READ_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(io), service_fn(answer));
    // An error concerns this client only.
    drop(connection.await);
}
