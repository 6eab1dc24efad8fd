//! Connections of the client: until all Services are served, until an endpoint has moved, and as many as possible.

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use socket2::SockRef;

use super::network::Network;
use crate::stop;
use crate::waits::Waits;

/// The longest that a proxy may need for all Services, on hardware: kube-proxy needs many minutes for tens of thousands.
const WHOLE: Duration = Duration::from_secs(1800);
/// The same for one change.
const CHANGE: Duration = Duration::from_secs(120);
/// Until a connection counts as failed while a proxy may not serve it yet.
const NOT_YET: Duration = Duration::from_millis(20);
/// The same once it serves.
const ANSWER: Duration = Duration::from_secs(2);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(1);
/// How often it is checked that the proxy still runs.
const CHECK: Duration = Duration::from_millis(500);
/// Clients that dial at the same time, and for how long.
const CLIENTS: usize = 2;
const LASTS: Duration = Duration::from_secs(4);
/// One of this number of connections has a latency above `slow_us`.
const SLOWEST: usize = 100;

/// Figures of many connections.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Connections {
    pub(super) per_second: f64,
    pub(super) median_us: f64,
    pub(super) slow_us: f64,
    /// Number of those that failed, which have no latency.
    pub(super) failed: f64,
}

/// Waits until all of these addresses answer, and returns the time at which the last one did.
pub(super) fn all_served(
    network: &Network,
    targets: &[SocketAddr],
    waits: Waits,
    check: &(dyn Fn() -> Result<()> + Sync),
) -> Result<Instant> {
    let what = "all Services to be served";
    network.client().inside(|| {
        for target in targets {
            until(what, waits.limit(WHOLE), check, || {
                dial(*target, NOT_YET).is_ok()
            })
            .with_context(|| format!("{target} does not answer"))?;
        }
        Ok(Instant::now())
    })
}

/// Waits until an endpoint with this address answers, and returns the time at which it did.
pub(super) fn answers_as(
    network: &Network,
    target: SocketAddr,
    endpoint: Ipv4Addr,
    waits: Waits,
    check: &(dyn Fn() -> Result<()> + Sync),
) -> Result<Instant> {
    network.client().inside(|| {
        until("an endpoint to move", waits.limit(CHANGE), check, || {
            dial(target, NOT_YET).is_ok_and(|by| by == endpoint)
        })?;
        Ok(Instant::now())
    })
}

fn until(
    what: &str,
    limit: Duration,
    check: &(dyn Fn() -> Result<()> + Sync),
    mut reached: impl FnMut() -> bool,
) -> Result<()> {
    let begin = Instant::now();
    let mut checked = begin;
    while !reached() {
        if checked.elapsed() >= CHECK {
            checked = Instant::now();
            check()?;
            stop::check()?;
        }
        ensure!(begin.elapsed() < limit, "waited {limit:?} for {what}");
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// The endpoint that answers.
fn dial(target: SocketAddr, deadline: Duration) -> std::io::Result<Ipv4Addr> {
    let mut stream = TcpStream::connect_timeout(&target, deadline)?;
    stream.set_read_timeout(Some(deadline))?;
    let mut octets = [0; 4];
    stream.read_exact(&mut octets)?;
    Ok(Ipv4Addr::from(octets))
}

/// Dials these addresses in turn, as often as possible.
pub(super) fn connections(network: &Network, targets: &[SocketAddr]) -> Result<Connections> {
    let clients = network.client().inside(|| {
        std::thread::scope(|scope| {
            let start = |first: usize| scope.spawn(move || many(targets, first));
            // All start before the first is waited for.
            let threads: Vec<_> = (0..CLIENTS).map(start).collect();
            let ended = threads.into_iter().map(|thread| {
                let ended = thread.join();
                ended.map_err(|_| anyhow!("a client panicked"))
            });
            ended.collect::<Result<Vec<_>>>()
        })
    })?;
    let failed: u32 = clients.iter().map(|client| client.failed).sum();
    let mut took: Vec<_> = clients.into_iter().flat_map(|client| client.took).collect();
    took.sort_unstable();
    let at = |index: usize| took.get(index).map(|took| took.as_secs_f64() * 1e6);
    let count = u32::try_from(took.len())?;
    Ok(Connections {
        per_second: f64::from(count) / LASTS.as_secs_f64(),
        median_us: at(took.len() / 2).context("no connection was made")?,
        slow_us: at(took.len() - 1 - took.len() / SLOWEST).context("no connection was made")?,
        failed: failed.into(),
    })
}

/// The connections of one client.
#[derive(Debug, Default)]
struct Client {
    /// How long each took to be open.
    took: Vec<Duration>,
    failed: u32,
}

fn many(targets: &[SocketAddr], first: usize) -> Client {
    let mut client = Client::default();
    let end = Instant::now() + LASTS;
    // Clients dial different addresses at any time.
    let offset = first * targets.len() / CLIENTS;
    for target in targets.iter().cycle().skip(offset) {
        if Instant::now() >= end {
            break;
        }
        match open(*target) {
            Ok(took) => client.took.push(took),
            Err(_) => client.failed += 1,
        }
    }
    client
}

/// Connects, and reads the answer, so that clients are not ahead of the server.
fn open(target: SocketAddr) -> std::io::Result<Duration> {
    let begin = Instant::now();
    let mut stream = TcpStream::connect_timeout(&target, ANSWER)?;
    let took = begin.elapsed();
    stream.set_read_timeout(Some(ANSWER))?;
    stream.read_exact(&mut [0; 4])?;
    // A reset keeps the port free: thousands of closed connections would wait.
    SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    Ok(took)
}
