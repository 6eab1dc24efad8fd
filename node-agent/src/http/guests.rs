//! Connections, of which a program has only so many. Who comes then is served, and whoever has been
//! there for longest goes: clients that stay and say nothing cannot keep others out.

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

use super::Page;
use crate::pages::Pages;

/// At most so many at once; each needs about 10 kB.
const MOST: usize = 128;
/// How long a client may take for the head of a request, and be silent between two.
const PATIENCE: Duration = Duration::from_secs(15);
/// The longest head of a request.
const LONGEST_HEAD: usize = 8192;

/// Who is served.
#[derive(Debug, Default)]
pub(super) struct Guests {
    /// From the first to the last who came.
    here: Mutex<VecDeque<AbortHandle>>,
}

impl Guests {
    /// Serves one more, as a task of `tasks`, with which it ends.
    pub(super) fn welcome(
        &self,
        stream: TcpStream,
        page: Page,
        pages: &Arc<Pages>,
        tasks: &mut JoinSet<()>,
    ) {
        let guest = tasks.spawn(serve(stream, page, pages.clone()));
        let mut here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        here.retain(|guest| !guest.is_finished());
        if here.len() >= MOST
            && let Some(first) = here.pop_front()
        {
            first.abort();
        }
        here.push_back(guest);
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
        .header_read_timeout(PATIENCE)
        .max_buf_size(LONGEST_HEAD)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    // Whatever ends a connection, it is the client's affair.
    drop(connection.await);
}
