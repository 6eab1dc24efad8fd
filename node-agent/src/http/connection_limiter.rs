//! Limits the number of HTTP connections. A new connection beyond the limit replaces the oldest one, so idle clients
//! cannot lock out others.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::header::ACCEPT;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};

use crate::page::Page;
use crate::pages::Pages;

/// Maximum number of connections; each needs about 10 kB.
const MAX_CONNECTIONS: usize = 128;
/// Timeout for the head of a request, and for the idle time between two requests.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum size of a request head in bytes.
const MAX_HEAD_BYTES: usize = 8192;

/// The open connections.
#[derive(Debug, Default)]
pub(super) struct ConnectionLimiter {
    /// The tasks of the connections, oldest first.
    connections: Mutex<VecDeque<AbortHandle>>,
}

impl ConnectionLimiter {
    /// Serves one more connection as a task in `tasks`, which ends with the set.
    pub(super) fn serve(
        &self,
        stream: TcpStream,
        page: Page,
        pages: &Arc<Pages>,
        tasks: &mut JoinSet<()>,
    ) {
        let task = tasks.spawn(serve(stream, page, pages.clone()));
        let connections = self.connections.lock();
        let mut connections = connections.unwrap_or_else(PoisonError::into_inner);
        connections.retain(|task| !task.is_finished());
        if connections.len() >= MAX_CONNECTIONS
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        connections.push_back(task);
    }
}

async fn serve(stream: TcpStream, page: Page, pages: Arc<Pages>) {
    let answer = |request: Request<Incoming>| {
        let accept = request.headers().get(ACCEPT);
        let accept = accept.and_then(|value| value.to_str().ok());
        let answer = pages.answer(page, request.uri().path(), accept);
        async { Ok::<_, Infallible>(Response::from(answer)) }
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(READ_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    // Errors of a connection concern only the client.
    drop(connection.await);
}
