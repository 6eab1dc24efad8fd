//! Servers that take their time: they still answer the requests that they have when they leave their Service.

use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
/// Requests of each client.
const REQUESTS: u32 = 8;
/// On a slow machine it may take longer than flows go on until a change is known to be in force.
const TRIES: u32 = 10;

/// S-116.
pub(super) fn requests_in_flight(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("servers that take their time");
    let servers = Servers {
        stays: SlowServer::start(lab, A1, "slow-a1")?,
        leaves: SlowServer::start(lab, B1, "slow-b1")?,
    };
    for family in Family::ALL {
        let mut tries = 0;
        let outcomes = loop {
            tries += 1;
            ensure!(
                tries <= TRIES,
                "each time it took {GRACE:?} or more until the change was known to be in force"
            );
            if let Some(outcomes) = leave_meanwhile(lab, family, &servers)? {
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
    servers.stays.end()?;
    servers.leaves.end()?;
    lab.put("talk.yaml", &slices("talk", &[ON_A1]))
}

struct Servers {
    stays: SlowServer,
    leaves: SlowServer,
}

/// Requests of all clients, which are answered when one of the two servers has left. `None` if that was too late.
fn leave_meanwhile(
    lab: &Lab<'_>,
    family: Family,
    servers: &Servers,
) -> Result<Option<Vec<(Resident, Outcome)>>> {
    lab.put("talk.yaml", &slices("talk", &[STAYS, LEAVES]))?;
    let Servers { stays, leaves } = servers;
    stays.hold();
    leaves.hold();
    let mut requests = Vec::new();
    for client in CLIENTS {
        for _ in 0..REQUESTS {
            let sender = Sender::open(lab.topology.of(client)?, frontends(family)[0])?;
            let limit = lab.limit(ANSWER);
            let request = std::thread::spawn(move || sender.ask(limit));
            requests.push((client, request));
        }
    }
    lab.eventually("all requests to reach the servers", SOON, || {
        let (stays, leaves) = (stays.held(), leaves.held());
        let all = stays + leaves == requests.len() && leaves > 0;
        ensure!(all, "they have {stays} and {leaves} of {}", requests.len());
        Ok(())
    })?;
    let begin = Instant::now();
    lab.put(
        "talk.yaml",
        &slices_with("talk", &[STAYS, LEAVES], &[LEAVES]),
    )?;
    stays.answer();
    leaves.answer();
    let mut outcomes = Vec::new();
    for (client, request) in requests {
        let outcome = request.join().map_err(|_| anyhow!("a client panicked"))??;
        outcomes.push((client, outcome));
    }
    let in_time = leaves.last_answer()? < begin + GRACE;
    Ok(in_time.then_some(outcomes))
}

/// A server that holds requests until it is told to answer.
struct SlowServer {
    state: Arc<Mutex<State>>,
    thread: JoinHandle<Result<()>>,
}

#[derive(Default)]
struct State {
    ends: bool,
    holds: bool,
    held: Vec<SocketAddr>,
    answered: Option<Instant>,
}

impl SlowServer {
    fn start(lab: &Lab<'_>, pod: Pod, name: &'static str) -> Result<Self> {
        let state = Arc::<Mutex<State>>::default();
        let namespace = lab.topology.of(Resident::Pod(pod))?;
        let socket = namespace.inside(|| {
            UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT)).context("listen on the slow port")
        })?;
        socket.set_read_timeout(Some(Duration::from_millis(5)))?;
        let thread = namespace.start(name, {
            let state = Arc::clone(&state);
            move || {
                loop {
                    let request = socket.recv_from(&mut [0; 64]).ok();
                    let mut state = lock(&state);
                    state.held.extend(request.map(|(_, peer)| peer));
                    if state.ends {
                        return Ok(());
                    }
                    if state.holds {
                        continue;
                    }
                    for peer in std::mem::take(&mut state.held) {
                        socket.send_to(greeting(name, peer).as_bytes(), peer)?;
                        state.answered = Some(Instant::now());
                    }
                }
            }
        })?;
        Ok(Self { state, thread })
    }

    fn hold(&self) {
        lock(&self.state).holds = true;
    }

    fn answer(&self) {
        lock(&self.state).holds = false;
    }

    /// How many requests it holds.
    fn held(&self) -> usize {
        lock(&self.state).held.len()
    }

    fn last_answer(&self) -> Result<Instant> {
        let last = lock(&self.state).answered;
        last.context("the server has answered nothing")
    }

    fn end(self) -> Result<()> {
        lock(&self.state).ends = true;
        let ended = self.thread.join();
        ended.map_err(|_| anyhow!("a server panicked"))?
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
