//! Servers that take their time: they still answer the requests that they have when they leave their Service.

use std::collections::VecDeque;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use super::manifests::{Endpoint, slices, slices_with};
use super::{A1, ANSWER, B1, CLIENTS, Checks, Lab, ON_A1, frontends};
use crate::topology::world::{Family, Pod, Resident};
use crate::traffic::client::Outcome;
use crate::traffic::sender::Sender;
use crate::traffic::server::greeting;
use crate::waits::SOON;

/// The port of the servers.
const PORT: u16 = 5656;
const STAYS: Endpoint = Endpoint {
    pod: A1,
    port: PORT,
};
const LEAVES: Endpoint = Endpoint {
    pod: B1,
    port: PORT,
};
/// For how long the flows of a server that leaves go on.
const GRACE: Duration = Duration::from_secs(1);
/// How long a server works on a request.
const WORK: Duration = Duration::from_millis(800);
/// Requests of each client.
const REQUESTS: usize = 8;
/// On a slow machine a change may take longer than the work, and the work longer than flows go on.
const TRIES: u32 = 5;

/// S-116.
pub(super) fn requests_in_flight(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("servers that take their time");
    let servers = [
        SlowServer::start(lab, A1, "slow-a1")?,
        SlowServer::start(lab, B1, "slow-b1")?,
    ];
    for family in Family::ALL {
        let mut tries = 0;
        let outcomes = loop {
            tries += 1;
            ensure!(
                tries <= TRIES,
                "no change was in force before the answers, or these came too late"
            );
            if let Some(outcomes) = leave_meanwhile(lab, family, &servers[1])? {
                break outcomes;
            }
        };
        let lost: Vec<_> = outcomes
            .iter()
            .filter(|(_, outcome)| !matches!(outcome, Outcome::Answered { .. }))
            .map(|(client, outcome)| format!("{}: {outcome}", client.name()))
            .collect();
        checks.require(
            &format!("{family}: a server that leaves answers the requests that it has (S-116)"),
            lost.is_empty(),
            &format!(
                "{} of {} lost: {}",
                lost.len(),
                outcomes.len(),
                lost.join(", ")
            ),
        );
    }
    for server in servers {
        server.end()?;
    }
    lab.put("talk.yaml", &slices("talk", &[ON_A1]))
}

/// Requests of all clients, while one of the two servers leaves. `None` if it answered before that, or too late.
fn leave_meanwhile(
    lab: &Lab<'_>,
    family: Family,
    leaving: &SlowServer,
) -> Result<Option<Vec<(Resident, Outcome)>>> {
    lab.put("talk.yaml", &slices("talk", &[STAYS, LEAVES]))?;
    let before = leaving.received();
    let start = Instant::now();
    let mut requests = Vec::new();
    for client in CLIENTS {
        for _ in 0..REQUESTS {
            let sender = Sender::open(lab.topology.of(client)?, frontends(family)[0])?;
            let limit = lab.limit(ANSWER);
            let request = std::thread::spawn(move || sender.ask(limit));
            requests.push((client, request));
        }
    }
    lab.eventually("a request to reach the server", SOON, || {
        ensure!(leaving.received() > before, "it has none");
        Ok(())
    })?;
    let begin = Instant::now();
    lab.put(
        "talk.yaml",
        &slices_with("talk", &[STAYS, LEAVES], &[LEAVES]),
    )?;
    let in_time = start.elapsed() < WORK;
    let mut outcomes = Vec::new();
    for (client, request) in requests {
        let outcome = request.join().map_err(|_| anyhow!("a client panicked"))??;
        outcomes.push((client, outcome));
    }
    let in_time = in_time && leaving.last_answer()? < begin + GRACE;
    Ok(in_time.then_some(outcomes))
}

/// A server that answers each datagram after [`WORK`].
struct SlowServer {
    ends: Arc<AtomicBool>,
    received: Arc<AtomicU32>,
    answered: Arc<Mutex<Option<Instant>>>,
    thread: JoinHandle<Result<()>>,
}

impl SlowServer {
    fn start(lab: &Lab<'_>, pod: Pod, name: &'static str) -> Result<Self> {
        let (ends, received) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let (end, counter) = (Arc::clone(&ends), Arc::clone(&received));
        let answered = Arc::<Mutex<Option<Instant>>>::default();
        let last = Arc::clone(&answered);
        let namespace = lab.topology.of(Resident::Pod(pod))?;
        let socket = namespace.inside(|| {
            UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT)).context("listen on the slow port")
        })?;
        socket.set_read_timeout(Some(Duration::from_millis(5)))?;
        let thread = namespace.start(name, move || {
            let mut waiting = VecDeque::<(Instant, SocketAddr)>::new();
            while !end.load(Ordering::Relaxed) {
                while let Some((_, peer)) = waiting.pop_front_if(|(due, _)| *due <= Instant::now())
                {
                    socket.send_to(greeting(name, peer).as_bytes(), peer)?;
                    *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                }
                if let Ok((_, peer)) = socket.recv_from(&mut [0; 64]) {
                    counter.fetch_add(1, Ordering::Relaxed);
                    waiting.push_back((Instant::now() + WORK, peer));
                }
            }
            Ok(())
        })?;
        Ok(Self {
            ends,
            received,
            answered,
            thread,
        })
    }

    fn received(&self) -> u32 {
        self.received.load(Ordering::Relaxed)
    }

    fn last_answer(&self) -> Result<Instant> {
        let last = self.answered.lock();
        let last = *last.unwrap_or_else(PoisonError::into_inner);
        last.context("the server has answered nothing")
    }

    fn end(self) -> Result<()> {
        self.ends.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.map_err(|_| anyhow!("a server panicked"))?
    }
}
