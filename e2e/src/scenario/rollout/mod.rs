//! Typical changes of a cluster, all at once: a rolling update of twenty endpoints, flapping readiness, hints that
//! switch zones, the last endpoint that leaves a node, and killed agents; while new connections are made all the time
//! and others stay open.
//!
//! Endpoints close gracefully: they answer for a while after the slices mark them as terminating, as pods with a
//! `preStop` pause do. No client retries.

mod load;
mod slices;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::load::{Call, Target, call, finish_loads, start_loads};
use self::slices::{Endpoint, Hints, State, slices};
use super::{Checks, Scenario, Stage};
use crate::chance::Chance;
use crate::files::{CLUSTER, ROLLOUT};
use crate::harness;
use crate::program::Program;
use crate::topology::Network;
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::traffic::Protocol;
use crate::traffic::line;
use crate::traffic::server::Server;
use crate::witness;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "rollout",
    shows: "a rolling update, flapping, hints, the last endpoint here, killed agents, all under load",
    run,
};

const PODS: [Pod; 4] = [
    Node::A.pod(1),
    Node::A.pod(2),
    Node::B.pod(1),
    Node::B.pod(2),
];
/// The ports of the endpoints that are replaced, and of those that take their places: each on every pod.
const OLD: std::ops::Range<u16> = 8101..8106;
const NEW: std::ops::Range<u16> = 8201..8206;
/// Where the others listen.
const STEADY: u16 = 8080;
const LEAVING: u16 = 8300;

/// From one change to the next.
const STEP: Duration = Duration::from_millis(1500);
const STEPS: u32 = 24;
/// How long an endpoint still answers after the slices mark it as terminating.
const GRACE: Duration = Duration::from_secs(10);
/// How long the load lasts: longer than all changes and their grace.
const LASTS: Duration = Duration::from_secs(50);
/// When external clients are moved to the other node, and when the last endpoint of the first is gone.
const LAST_MOVES: Duration = Duration::from_secs(20);
/// Connections that stay, to what lives and to what is replaced.
const STAY: usize = 50;
const END: usize = 10;
/// The drain deadline in the manifest, and the agents' interval for checking it.
const DRAIN: Duration = Duration::from_secs(6);
const LOOKS: Duration = Duration::from_secs(4);

/// The content of the slices, and the servers behind them.
struct Day {
    /// Servers of endpoints that end, and when they do.
    servers: BTreeMap<Endpoint, (Server, Option<Instant>)>,
    roll: BTreeMap<Endpoint, State>,
    flap: BTreeMap<Endpoint, State>,
    here: BTreeMap<Endpoint, State>,
}

type Lab<'a> = harness::Lab<'a, Day>;

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let steady = PODS.map(|pod| Endpoint { port: STEADY, pod });
    let leaving = [PODS[1], PODS[3]].map(|pod| Endpoint { port: LEAVING, pod });
    let ready = |endpoints: &[Endpoint]| -> BTreeMap<_, _> {
        endpoints.iter().map(|of| (*of, State::Ready)).collect()
    };
    let day = Day {
        servers: BTreeMap::new(),
        roll: ready(&all(OLD)),
        flap: ready(&steady),
        here: ready(&leaving),
    };
    let mut lab = harness::Lab::new(stage, Network::Routed)?.with(day);
    lab.serve_pods()?;
    for endpoint in steady {
        lab.serve_lines(endpoint)?;
    }
    for endpoint in all(OLD).into_iter().chain(leaving) {
        lab.serve(endpoint)?;
        lab.serve_lines(endpoint)?;
    }
    lab.write("nodes.yaml", &stage.files.text(CLUSTER[0])?)?;
    lab.write("services.yaml", &stage.files.text(ROLLOUT)?)?;
    lab.publish(Hints::None)?;
    lab.start()?;
    lab.run_parts(checks, &[("a working day", Lab::day)])
}

/// An endpoint of every pod on each of these ports.
fn all(ports: std::ops::Range<u16>) -> Vec<Endpoint> {
    let on = |port| PODS.map(|pod| Endpoint { port, pod });
    ports.flat_map(on).collect()
}

impl Lab<'_> {
    fn serve(&mut self, endpoint: Endpoint) -> Result<()> {
        let namespace = self.topology.of(Resident::Pod(endpoint.pod))?;
        let node = self.node(endpoint.pod.node)?;
        for family in Family::ALL {
            let address = format!("{}/{}", endpoint.address(family), family.host_bits());
            let add = ["address", "add", &address, "dev", "eth0"];
            namespace.inside(|| Program::Ip.run(&add))?;
            let cable = endpoint.pod.cable();
            let route = ["route", "add", &address, "dev", &cable];
            node.inside(|| Program::Ip.run(&route))?;
        }
        let ports = [(Protocol::Tcp, endpoint.port)];
        let server = Server::start(namespace, &endpoint.name(), &ports)?;
        self.state.servers.insert(endpoint, (server, None));
        Ok(())
    }

    fn serve_lines(&self, endpoint: Endpoint) -> Result<()> {
        let namespace = self.topology.of(Resident::Pod(endpoint.pod))?;
        line::serve(namespace, &endpoint.name(), endpoint.lines())
    }

    /// An endpoint is about to end: it answers for the time of grace.
    fn ends(&mut self, endpoint: Endpoint, now: Instant) -> Result<()> {
        let (_, end) = self
            .state
            .servers
            .get_mut(&endpoint)
            .context("it has no server")?;
        *end = Some(now + GRACE);
        Ok(())
    }

    /// Closes servers that have ended. New connections to them are refused.
    fn close(&mut self, now: Instant) {
        self.state
            .servers
            .retain(|_, (_, end)| end.is_none_or(|end| end > now));
    }

    fn publish(&self, hints: Hints) -> Result<()> {
        for (service, endpoints, hints) in [
            ("roll", &self.state.roll, Hints::None),
            ("flap", &self.state.flap, Hints::None),
            ("zoned", &self.state.flap, hints),
            ("here", &self.state.here, Hints::None),
        ] {
            // Flapping endpoints have no hints.
            let ready: BTreeMap<_, _> = endpoints.keys().map(|of| (*of, State::Ready)).collect();
            let endpoints = if service == "zoned" {
                &ready
            } else {
                endpoints
            };
            let text = slices(service, endpoints, hints);
            self.write(&format!("{service}.yaml"), &text)?;
        }
        Ok(())
    }

    fn day(&mut self, checks: &mut Checks) -> Result<()> {
        self.line(&format!(
            "endpoints go on for {} s after the slices said that they end; seed {} (repeat with --seed {1})",
            GRACE.as_secs(),
            self.stage.seed
        ));
        let mut stay = call(self, Target::Flap, STAY)?;
        let mut end = call(self, Target::Roll, END)?;
        let start = Instant::now() + Duration::from_millis(500);
        let loads = start_loads(self, start)?;
        let changed = self.change(start, &mut stay, &mut end);
        finish_loads(loads, self, checks)?;
        checks.check(
            "all of this happens, and connections to what is replaced go on at first (S-114)",
            changed.map_err(|error| self.cluster.with_logs(error)),
        );
        let lives = stay.iter_mut().try_for_each(Call::lives);
        checks.check(
            &format!("{STAY} open connections live through it (S-114, S-117, S-118)"),
            lives,
        );
        std::thread::sleep((DRAIN + LOOKS).saturating_sub(LASTS.saturating_sub(STEP * STEPS)));
        let living: Vec<_> = end
            .iter_mut()
            .filter_map(|call| call.lives().ok().map(|()| &call.by))
            .collect();
        checks.require(
            &format!("{END} to what was replaced end at its deadline (S-115)"),
            living.is_empty(),
            &format!("still there: {living:?}"),
        );
        checks.check("both agents have the plan in force", self.settled());
        Ok(())
    }

    /// One change after the other, without waiting for nodes to follow.
    fn change(&mut self, start: Instant, stay: &mut [Call], end: &mut [Call]) -> Result<()> {
        let mut chance = Chance::from_seed(self.stage.seed);
        let (old, new) = (all(OLD), all(NEW));
        let mut gone: BTreeMap<String, Instant> = BTreeMap::new();
        for step in 0..STEPS {
            let moment = start + STEP * step;
            crate::waits::sleep_until(moment)?;
            let now = Instant::now();
            let number = step as usize;
            self.roll_on(&old, &new, number, now)?;
            if let Some(gone_now) = number.checked_sub(1).and_then(|number| old.get(number)) {
                gone.insert(gone_now.name(), now);
            }
            self.turn(&mut chance);
            self.leave(step, now)?;
            let hints = [Hints::None, Hints::Own, Hints::Swapped][number / 4 % 3];
            self.publish(hints)?;
            if step % 8 == 3 {
                let node = chance.either(Node::A, Node::B);
                crate::waits::sleep_until(moment + chance.between(Duration::ZERO, STEP))?;
                self.crash_agent(node)?;
            }
            stay.iter_mut().try_for_each(Call::lives)?;
            let healthy = |call: &&mut Call| {
                let since = gone.get(&call.by);
                since.is_none_or(|since| since.elapsed() < DRAIN / 2)
            };
            end.iter_mut().filter(healthy).try_for_each(Call::lives)?;
            self.close(Instant::now());
        }
        let last = start + LASTS;
        while Instant::now() < last {
            crate::waits::sleep_until((Instant::now() + STEP).min(last))?;
            self.close(Instant::now());
        }
        ensure!(gone.len() == old.len(), "only {} were replaced", gone.len());
        ensure!(
            self.state.servers.len() == new.len() + 1,
            "{} servers are left",
            self.state.servers.len()
        );
        Ok(())
    }

    /// One endpoint comes, one begins to end, and the one that began before leaves the slices.
    fn roll_on(
        &mut self,
        old: &[Endpoint],
        new: &[Endpoint],
        step: usize,
        now: Instant,
    ) -> Result<()> {
        if let Some(comes) = new.get(step) {
            self.serve(*comes)?;
            self.state.roll.insert(*comes, State::Ready);
        }
        if let Some(ends) = old.get(step) {
            self.state.roll.insert(*ends, State::Terminating);
            self.ends(*ends, now)?;
        }
        if let Some(gone) = step.checked_sub(1).and_then(|step| old.get(step)) {
            self.state.roll.remove(gone);
        }
        Ok(())
    }

    /// Another endpoint than before fails its probe.
    fn turn(&mut self, chance: &mut Chance) {
        let unlucky = usize::try_from(chance.number() % PODS.len() as u64).unwrap_or(0);
        for (number, state) in self.state.flap.values_mut().enumerate() {
            *state = if number == unlucky {
                State::Unready
            } else {
                State::Ready
            };
        }
    }

    /// The only endpoint of node-a is about to end before external clients are moved to the other node, and goes after
    /// that.
    fn leave(&mut self, step: u32, now: Instant) -> Result<()> {
        let last = Endpoint {
            port: LEAVING,
            pod: PODS[1],
        };
        let ends = LAST_MOVES.saturating_sub(STEP * 2);
        if STEP * step >= ends && self.state.here.get(&last) == Some(&State::Ready) {
            self.state.here.insert(last, State::Terminating);
            self.ends(last, now)?;
        }
        if STEP * step >= ends + GRACE {
            self.state.here.remove(&last);
        }
        Ok(())
    }

    /// Waits until both kernels have all new endpoints and no removed one.
    fn settled(&self) -> Result<()> {
        let wanted: BTreeSet<_> = all(NEW).iter().map(|of| of.port).collect();
        for node in Node::ALL {
            for family in Family::ALL {
                let key = witness::VirtualServer {
                    protocol: "TCP".to_owned(),
                    address: Target::Roll.at(family, 80),
                };
                let servers = self.cluster.virtual_servers(node)?;
                let held = servers
                    .get(&key)
                    .with_context(|| format!("{} lacks {}", node.name(), key.address))?;
                let ports: BTreeSet<_> = held.keys().map(|at| at.port()).collect();
                if ports != wanted || held.len() != all(NEW).len() {
                    bail!("{} has {held:?}", node.name());
                }
            }
        }
        Ok(())
    }
}
