//! Admin pages of the controller over HTTP/1.1. `/healthz`, `/readyz` and `/metrics` are public. All other pages
//! require TLS or loopback, and a user whom the API server authenticates and authorizes.
//!
//! Accesses the network and, for authorization, the API server.

mod authorize;
mod guests;
mod visitors;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Method, Request, Response};
use portolan_metrics::Format;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;
use tracing::{info, warn};

pub use authorize::Denied;
pub use visitors::Visitors;

use crate::agent_registry::AgentRegistry;
use crate::convergence::{self, Question};
use crate::freshness::Freshness;
use crate::open_files::AcceptErrors;
use crate::store::Store;
use crate::telemetry::load::ListenerName;
use crate::telemetry::metrics::{Counters, Metrics};
use guests::Guests;

/// Delay before another attempt to bind the address.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// Maximum number of answers that are made at a time. Some count all nodes.
const MAX_WORKERS: usize = 4;

/// The data of the pages.
#[derive(Debug)]
pub struct Pages {
    /// The metrics of the controller.
    pub metrics: Metrics,
    /// The plans. The controller is ready once the first version is published, while its objects are current.
    pub store: Arc<Store>,
    /// The age of the objects.
    pub freshness: Arc<Freshness>,
    /// The state of the agents.
    pub registry: Arc<AgentRegistry>,
    /// When this controller started.
    pub started: SystemTime,
    /// The TLS configuration; without it, TLS connections fail.
    pub tls: Option<Arc<ServerConfig>>,
    /// The users of [`convergence::PATH`].
    pub visitors: Visitors,
    /// The threads that make answers.
    pub workers: Workers,
}

/// The number of answers that are made at the same time on threads of their own. A client that goes away does not stop
/// its answer, so requests alone are no bound.
#[derive(Debug)]
pub struct Workers(Arc<Semaphore>);

impl Default for Workers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_WORKERS)))
    }
}

/// The client of a request.
#[derive(Debug, Clone, Copy)]
pub struct Visitor {
    /// Its address.
    pub address: IpAddr,
    /// Whether the request came over TLS or loopback.
    pub private: bool,
}

/// Serves the pages for as long as the program runs. If the address cannot be bound, it retries; the rest of the
/// controller is not affected.
pub async fn serve(address: SocketAddr, pages: Arc<Pages>, counters: Arc<Counters>) {
    let mut logged = None;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return accept(listener, pages, counters).await,
            Err(error) => {
                let words = error.to_string();
                if logged.as_ref() != Some(&words) {
                    warn!(
                        %address,
                        "cannot serve health and metrics: {words}; check --admin"
                    );
                    logged = Some(words);
                }
                sleep(RETRY_DELAY).await;
            }
        }
    }
}

async fn accept(listener: TcpListener, pages: Arc<Pages>, counters: Arc<Counters>) {
    let address = listener.local_addr().ok();
    let local = address.is_some_and(|address| address.ip().is_loopback());
    if let Some(address) = address {
        info!(%address, "health and metrics");
    }
    let guests = Guests::new();
    let mut errors = AcceptErrors::new(ListenerName::admin, counters);
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            taken = listener.accept() => match taken {
                Ok((stream, from)) => {
                    let address = from.ip().to_canonical();
                    let visitor = Visitor { address, private: local };
                    guests.welcome(stream, visitor, &pages, &mut tasks);
                }
                Err(error) => sleep(errors.note(&error)).await,
            },
            Some(_) = tasks.join_next() => {}
        }
    }
}

impl Pages {
    /// Answers a request. Only [`convergence::PATH`] needs the API server.
    pub async fn answer<B>(
        self: &Arc<Self>,
        request: &Request<B>,
        visitor: Visitor,
    ) -> Response<Full<Bytes>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return text(405, "only GET\n");
        }
        let path = request.uri().path();
        match path {
            "/healthz" => self.health(),
            "/readyz" => self.readiness(),
            "/metrics" => self.metrics(request.headers().get(ACCEPT)).await,
            convergence::PATH if !visitor.private => text(
                403,
                "only over TLS or loopback, because the request contains a token\n",
            ),
            convergence::PATH => {
                let header = request.headers().get(AUTHORIZATION);
                let header = header.and_then(|value| value.to_str().ok());
                match self.visitors.admit(header, path, visitor.address).await {
                    Ok(()) => self.convergence(request.uri().query()).await,
                    Err(denied) => text(denied.status, denied.message + "\n"),
                }
            }
            _ => text(404, "404 page not found\n"),
        }
    }
}

impl Pages {
    /// Whether the engine works. While the API server is lost, a restart would not help.
    fn health(&self) -> Response<Full<Bytes>> {
        if self.freshness.is_hung() {
            return text(503, "planning does not end; a restart is necessary\n");
        }
        text(200, "ok")
    }

    fn readiness(&self) -> Response<Full<Bytes>> {
        match self.freshness.stale() {
            Some(stale) => text(503, format!("{stale}\n")),
            None if *self.store.changes().borrow() > 0 => text(200, "ok"),
            None => text(503, "nothing is planned yet\n"),
        }
    }

    async fn metrics(self: &Arc<Self>, accept: Option<&HeaderValue>) -> Response<Full<Bytes>> {
        let format = Format::wanted(accept.and_then(|value| value.to_str().ok()));
        self.apart(move |pages| match pages.metrics.page(format) {
            Ok(page) => of_type(200, format.content_type(), page),
            Err(error) => text(500, format!("{error}\n")),
        })
        .await
    }

    async fn convergence(self: &Arc<Self>, query: Option<&str>) -> Response<Full<Bytes>> {
        let question = match Question::read(query.unwrap_or_default()) {
            Ok(question) => question,
            Err(error) => return text(400, format!("{error}\n")),
        };
        self.apart(move |pages| {
            let (store, registry, now) = (&pages.store, &pages.registry, SystemTime::now());
            let known = convergence::answer(&question, store, registry, pages.started, now);
            match serde_json::to_vec(&known) {
                Ok(json) => of_type(200, "application/json", json),
                Err(error) => text(500, format!("{error}\n")),
            }
        })
        .await
    }

    /// Makes an answer on a thread of its own: it counts all nodes, and waits for the engine while it plans, which must
    /// not delay streams and probes.
    async fn apart(
        self: &Arc<Self>,
        answer: impl FnOnce(&Self) -> Response<Full<Bytes>> + Send + 'static,
    ) -> Response<Full<Bytes>> {
        let pages = self.clone();
        let Ok(permit) = self.workers.0.clone().acquire_owned().await else {
            return text(503, "this controller is ending\n");
        };
        let answer = spawn_blocking(move || {
            let _permit = permit;
            answer(pages.as_ref())
        });
        let answer = answer.await;
        answer.unwrap_or_else(|error| text(500, format!("{error}\n")))
    }
}

fn text(status: u16, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    of_type(status, "text/plain; charset=utf-8", body)
}

fn of_type(status: u16, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    if let Ok(status) = status.try_into() {
        *response.status_mut() = status;
    }
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

#[cfg(test)]
mod tests;
