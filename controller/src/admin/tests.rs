//! Tests of the admin pages.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use http_body_util::BodyExt as _;
use portolan_plan::NodeEntry;
use portolan_planner::model::Kind;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{advance, timeout};

use super::*;
use crate::cluster_state::Shared;
use crate::engine::{ClusterSource, Engine};
use crate::room::MIN_TIME;
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

/// An attacker with many pods has as many addresses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_of_many_addresses_take_no_place_from_a_node() {
    let store: Arc<Store> = Arc::default();
    let kubelet = NodeEntry {
        addresses: vec![Ipv4Addr::new(127, 0, 0, 200).into()],
        ..NodeEntry::default()
    };
    store.publish(portolan_planner::Update {
        nodes: BTreeMap::from([("node-1".into(), Some(Arc::new(kubelet)))]),
        ..portolan_planner::Update::default()
    });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(accept(
        listener,
        pages(&store, &Arc::default()),
        Arc::default(),
    ));
    let (mut here, mut node) = (connect(1, address).await, connect(200, address).await);
    let mut silent = Vec::new();
    // The oldest connection leaves for others only after some time.
    for _ in 0..2 {
        for from in 2..=120 {
            silent.push(connect(from, address).await);
        }
        sleep(MIN_TIME).await;
    }
    let mut later = connect(1, address).await;
    for stream in [&mut here, &mut node, &mut later] {
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
