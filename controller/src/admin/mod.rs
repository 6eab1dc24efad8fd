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
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{info, warn};

pub use authorize::Denied;
pub use visitors::Visitors;

use crate::agent_registry::AgentRegistry;
use crate::convergence::{self, Question};
use crate::store::Store;
use crate::telemetry::metrics::Metrics;
use guests::Guests;

/// Delay before another attempt to bind the address.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// Pause after a failed accept, for example when too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The data of the pages.
#[derive(Debug)]
pub struct Pages {
    /// The metrics of the controller.
    pub metrics: Metrics,
    /// The plans. The controller is ready once the first version is published.
    pub store: Arc<Store>,
    /// The state of the agents.
    pub registry: Arc<AgentRegistry>,
    /// When this controller started.
    pub started: SystemTime,
    /// The TLS configuration; without it, TLS connections fail.
    pub tls: Option<Arc<ServerConfig>>,
    /// The users of [`convergence::PATH`].
    pub visitors: Visitors,
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
pub async fn serve(address: SocketAddr, pages: Arc<Pages>) {
    let mut logged = None;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return accept(listener, pages).await,
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

async fn accept(listener: TcpListener, pages: Arc<Pages>) {
    let address = listener.local_addr().ok();
    let local = address.is_some_and(|address| address.ip().is_loopback());
    if let Some(address) = address {
        info!(%address, "health and metrics");
    }
    let guests = Guests::new();
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            taken = listener.accept() => match taken {
                Ok((stream, from)) => {
                    let address = from.ip().to_canonical();
                    let visitor = Visitor { address, private: local };
                    guests.welcome(stream, visitor, &pages, &mut tasks);
                }
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = tasks.join_next() => {}
        }
    }
}

impl Pages {
    /// Answers a request. Only [`convergence::PATH`] needs the API server.
    pub async fn answer<B>(&self, request: &Request<B>, visitor: Visitor) -> Response<Full<Bytes>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return text(405, "only GET\n");
        }
        let path = request.uri().path();
        match path {
            "/healthz" => text(200, "ok"),
            "/readyz" if *self.store.changes().borrow() > 0 => text(200, "ok"),
            "/readyz" => text(503, "nothing is planned yet\n"),
            "/metrics" => self.metrics(request.headers().get(ACCEPT)),
            convergence::PATH if !visitor.private => text(
                403,
                "only over TLS or loopback, because the request contains a token\n",
            ),
            convergence::PATH => {
                let header = request.headers().get(AUTHORIZATION);
                let header = header.and_then(|value| value.to_str().ok());
                match self.visitors.admit(header, path, visitor.address).await {
                    // As long as the permit lasts, few others compute an answer.
                    Ok(_permit) => self.convergence(request.uri().query()),
                    Err(denied) => text(denied.status, denied.message + "\n"),
                }
            }
            _ => text(404, "404 page not found\n"),
        }
    }
}

impl Pages {
    fn metrics(&self, accept: Option<&HeaderValue>) -> Response<Full<Bytes>> {
        let format = Format::wanted(accept.and_then(|value| value.to_str().ok()));
        match self.metrics.page(format) {
            Ok(page) => of_type(200, format.content_type(), page),
            Err(error) => text(500, format!("{error}\n")),
        }
    }

    fn convergence(&self, query: Option<&str>) -> Response<Full<Bytes>> {
        let question = match Question::read(query.unwrap_or_default()) {
            Ok(question) => question,
            Err(error) => return text(400, format!("{error}\n")),
        };
        let now = SystemTime::now();
        let known = convergence::answer(&question, &self.store, &self.registry, self.started, now);
        match serde_json::to_vec(&known) {
            Ok(json) => of_type(200, "application/json", json),
            Err(error) => text(500, format!("{error}\n")),
        }
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
mod tests {
    use std::net::Ipv4Addr;

    use http_body_util::BodyExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpSocket, TcpStream};
    use tokio::time::timeout;

    use super::*;
    use crate::telemetry::metrics::Counters;

    async fn get(pages: &Pages, path: &str, private: bool) -> (u16, String) {
        let request = Request::get(path).body(()).unwrap();
        let address = [10, 0, 0, 1].into();
        let response = pages.answer(&request, Visitor { address, private }).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    fn pages(store: &Arc<Store>) -> Pages {
        Pages {
            metrics: Metrics::new(&Counters::default(), Arc::default(), store.clone()),
            store: store.clone(),
            registry: Arc::default(),
            started: SystemTime::UNIX_EPOCH,
            tls: None,
            visitors: Visitors::new(None),
        }
    }

    /// A connection from this address of the loopback network.
    async fn connect(from: u8, to: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        let from = Ipv4Addr::new(127, 0, 0, from);
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        socket.connect(to).await.unwrap()
    }

    /// Requests `/healthz`, and reads all that is sent.
    async fn probe(stream: &mut TcpStream) -> std::io::Result<String> {
        let request = "GET /healthz HTTP/1.1\r\nHost: c\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    /// A failed health check would restart the controller.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn silent_connections_of_one_address_end_no_health_check() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let pages = Arc::new(pages(&Arc::default()));
        tokio::spawn(accept(listener, pages));
        let mut before = connect(1, address).await;
        let mut silent = Vec::new();
        for _ in 0..100 {
            silent.push(connect(2, address).await);
        }
        let mut after = connect(1, address).await;
        for stream in [&mut before, &mut after] {
            let answer = timeout(Duration::from_secs(20), probe(stream)).await;
            let answer = answer.expect("an answer").unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        }
        drop(silent);
    }

    #[tokio::test]
    async fn health_and_metrics_need_no_token_and_readiness_needs_a_plan() {
        let store: Arc<Store> = Arc::default();
        let pages = pages(&store);
        assert_eq!(get(&pages, "/healthz", false).await.0, 200);
        assert_eq!(get(&pages, "/readyz", false).await.0, 503);
        store.publish(portolan_planner::Update::default());
        assert_eq!(get(&pages, "/readyz", false).await.0, 200);
        let (status, metrics) = get(&pages, "/metrics", false).await;
        assert_eq!(status, 200);
        assert!(metrics.contains("portolan_controller_plans 0"), "{metrics}");
        assert_eq!(get(&pages, "/convergence", false).await.0, 403);
        assert_eq!(get(&pages, "/convergence", true).await.0, 401);
        assert_eq!(get(&pages, "/debug", true).await.0, 404);
    }
}
