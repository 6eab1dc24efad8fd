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
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::mpsc::{SyncSender, sync_channel};
    use std::thread::JoinHandle;
    use std::time::Instant;

    use http_body_util::BodyExt as _;
    use portolan_planner::model::Kind;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpSocket, TcpStream};
    use tokio::sync::{mpsc, oneshot};
    use tokio::time::{advance, timeout};

    use super::*;
    use crate::cluster_state::Shared;
    use crate::engine::{ClusterSource, Engine};
    use crate::watch::{Answer, Mark, ObjectUpdate};

    fn pages(store: &Arc<Store>, freshness: &Arc<Freshness>) -> Arc<Pages> {
        Arc::new(Pages {
            metrics: Metrics::new(&Counters::default(), Arc::default(), store.clone()),
            store: store.clone(),
            freshness: freshness.clone(),
            registry: Arc::default(),
            started: SystemTime::UNIX_EPOCH,
            tls: None,
            visitors: Visitors::new(None),
            workers: Workers::default(),
        })
    }

    async fn get(pages: &Arc<Pages>, path: &str, private: bool) -> (u16, String) {
        let request = Request::get(path).body(()).unwrap();
        let address = [10, 0, 0, 1].into();
        let response = pages.answer(&request, Visitor { address, private }).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
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
        let pages = pages(&Arc::default(), &Arc::default());
        tokio::spawn(accept(listener, pages, Arc::default()));
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
        let pages = pages(&store, &Arc::default());
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

    fn answer(kind: Kind, update: Option<ObjectUpdate>) -> Answer {
        Answer {
            kind,
            update,
            mark: Mark::default(),
            arrival: None,
        }
    }

    fn empty_list(kind: Kind) -> Answer {
        let update = ObjectUpdate::All {
            objects: Vec::new(),
            unreadable: Vec::new(),
        };
        answer(kind, Some(update))
    }

    /// The status codes of readiness and health.
    async fn codes(pages: &Arc<Pages>) -> (u16, u16) {
        let ready = get(pages, "/readyz", false).await.0;
        (ready, get(pages, "/healthz", false).await.0)
    }

    /// Holds the lock of the plans until the sender is dropped.
    async fn lock(known: Shared) -> (SyncSender<()>, JoinHandle<()>) {
        let (is_locked, locked) = oneshot::channel();
        let (release, released) = sync_channel::<()>(0);
        let holding = std::thread::spawn(move || {
            let lock = known.write();
            is_locked.send(()).unwrap();
            released.recv().unwrap_err();
            drop(lock);
        });
        locked.await.unwrap();
        (release, holding)
    }

    /// S-231. The pages answer without the lock for which the engine waits.
    #[tokio::test(start_paused = true)]
    async fn while_planning_hangs_the_controller_is_first_unready_and_then_unhealthy() {
        let (store, known) = (Arc::<Store>::default(), Shared::default());
        let freshness: Arc<Freshness> = Arc::default();
        let pages = pages(&store, &freshness);
        let engine = Engine::new(known.clone(), store.clone(), None);
        let engine = engine.with_freshness(freshness.clone());
        let (answers, received) = mpsc::channel(8);
        let source = ClusterSource::new(engine, received);
        let engine = spawn_blocking(move || source.follow());
        for kind in Kind::ALL {
            answers.send(empty_list(kind)).await.unwrap();
        }
        let mut changes = store.changes();
        drop(changes.wait_for(|version| *version > 0).await.unwrap());
        let (release, holding) = lock(known).await;
        answers.send(answer(Kind::Node, None)).await.unwrap();
        let begun = Instant::now();
        while freshness.turn_age().is_zero() {
            assert!(begun.elapsed().as_secs() < 20, "it does not begin");
            advance(Duration::from_millis(1)).await;
        }
        advance(Duration::from_secs(89)).await;
        assert_eq!(codes(&pages).await, (200, 200));
        advance(Duration::from_secs(1)).await;
        let unready = "stale: planning has not ended for 90 s\n";
        assert_eq!(get(&pages, "/readyz", false).await.1, unready);
        assert_eq!(codes(&pages).await, (503, 200));
        advance(Duration::from_secs(30)).await;
        assert_eq!(codes(&pages).await, (503, 503));
        drop(release);
        holding.join().unwrap();
        drop(answers);
        engine.await.unwrap();
        assert_eq!(codes(&pages).await, (200, 200));
    }

    /// S-231. A restart would not bring the API server back, and would lose the plans.
    #[tokio::test(start_paused = true)]
    async fn without_the_api_server_the_controller_is_unready_but_healthy() {
        let store: Arc<Store> = Arc::default();
        let start = tokio::time::Instant::now();
        let freshness = Arc::new(Freshness::watching([Kind::Service], start));
        let pages = pages(&store, &freshness);
        store.publish(portolan_planner::Update::default());
        assert_eq!(get(&pages, "/readyz", false).await.0, 200);
        advance(Duration::from_secs(97)).await;
        let unready = "stale: nothing about Services was received from the API server for 97 s\n";
        assert_eq!(get(&pages, "/readyz", false).await.1, unready);
        assert_eq!(codes(&pages).await, (503, 200));
        freshness.received(Kind::Service);
        assert_eq!(codes(&pages).await, (200, 200));
    }

    /// There is one worker here. On a machine with two, two scrapes would have stopped streams, the lease and probes.
    #[tokio::test]
    async fn a_scrape_that_waits_for_the_engine_delays_no_probe() {
        let shared = Shared::default();
        let mut metrics = Metrics::new(&Counters::default(), Arc::default(), Arc::default());
        metrics.add_endpoints(shared.clone());
        let pages = Arc::new(Pages {
            metrics,
            store: Arc::default(),
            freshness: Arc::default(),
            registry: Arc::default(),
            started: SystemTime::UNIX_EPOCH,
            tls: None,
            visitors: Visitors::new(None),
            workers: Workers::default(),
        });
        let (begin, begun) = sync_channel(0);
        let (end, ended) = sync_channel::<()>(0);
        let engine = std::thread::spawn(move || {
            let planning = shared.write();
            begin.send(()).unwrap();
            // Ends also if the scrape keeps the test from ending it.
            ended.recv_timeout(Duration::from_secs(5)).unwrap_err();
            drop(planning);
        });
        begun.recv().unwrap();
        let scrape = tokio::spawn({
            let pages = pages.clone();
            async move { get(&pages, "/metrics", false).await.0 }
        });
        tokio::task::yield_now().await;
        assert_eq!(get(&pages, "/healthz", false).await.0, 200);
        assert!(!scrape.is_finished(), "the engine still plans");
        drop(end);
        assert_eq!(scrape.await.unwrap(), 200);
        engine.join().unwrap();
    }
}
