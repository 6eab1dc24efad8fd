//! All parts of a simulation, and its course.

use std::sync::Arc;
use std::time::Duration;

use portolan_agent::watermark::Memory;
use portolan_plan::PlanHash;
use portolan_planner::model::Kind;
use tokio::time::{Instant, sleep};

use crate::Simulated;
use crate::agent::{Agent, Disk, Host};
use crate::api::ApiServer;
use crate::choices::Choices;
use crate::controller::Controller;
use crate::expected;
use crate::link::Passage;
use crate::network::Connections;
use crate::objects::{NODES, Name};
use crate::steps::{Change, Step};
use crate::witness::{Checked, Invariant, Violation, Witness, violated};

/// Interval of checks while time passes.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Time that a controller has to end gracefully, as in the program.
const GRACE_PERIOD: Duration = Duration::from_millis(500);
/// Time in which all nodes receive the newest plan once nothing is interrupted. Longer than all timeouts and delays of
/// agents and controllers together.
const SETTLE_LIMIT: Duration = Duration::from_secs(400);
/// Time for the last retries after interruptions, and for a bookmark of each watch, from which it resumes without a list.
const RETRY_TIME: Duration = Duration::from_secs(70);
/// Time in which nothing may be listed.
const QUIET_TIME: Duration = Duration::from_secs(65);
/// Time in which all agents return to their first controllers: that of two attempts.
const RETURN_LIMIT: Duration = Duration::from_secs(300);

/// Why a simulation ended early.
enum Stop {
    Violated(Violation),
    /// The simulation itself does not work.
    Broken(String),
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Self {
        Self::Violated(violation)
    }
}

/// All parts.
struct World {
    choices: Choices,
    api: Arc<ApiServer>,
    connections: Arc<Connections>,
    witness: Witness,
    controllers: Vec<Option<Controller>>,
    hosts: Vec<Host>,
    agents: Vec<Option<Agent>>,
    /// The number of starts of controllers.
    runs: u64,
}

/// Simulates the steps of a seed.
///
/// # Errors
/// The simulation itself does not work.
pub(crate) async fn run(seed: u64) -> Result<Simulated, String> {
    let mut world = World::new(Choices::from_seed(seed));
    let mut steps = Vec::new();
    let violation = match world.simulate(&mut steps).await {
        Ok(()) => None,
        Err(Stop::Violated(violation)) => Some(violation),
        Err(Stop::Broken(problem)) => return Err(format!("seed {seed}: {problem}")),
    };
    Ok(Simulated { steps, violation })
}

impl World {
    fn new(mut choices: Choices) -> Self {
        let controllers = 2 + choices.below(2);
        let api = Arc::new(ApiServer::new(controllers));
        let connections = Arc::new(Connections::new(NODES, controllers));
        let witness = Witness::new(api.clone());
        let host = |number| Host {
            number,
            connections: connections.clone(),
            controllers,
            witness: witness.clone(),
            disk: Disk::default(),
            watermark: Memory::default(),
            pass: choices.milliseconds(1, 30),
        };
        let hosts = (0..NODES).map(host).collect();
        Self {
            choices,
            api,
            connections,
            witness,
            controllers: (0..controllers).map(|_| None).collect(),
            hosts,
            agents: (0..NODES).map(|_| None).collect(),
            runs: 0,
        }
    }

    async fn simulate(&mut self, steps: &mut Vec<String>) -> Result<(), Stop> {
        Name::all().for_each(|name| self.api.put(name));
        self.remove_interruptions();
        self.settle(None).await?;
        let count = 30 + self.choices.below(40);
        for _ in 0..count {
            let step = Step::choose(&mut self.choices, self.controllers.len());
            steps.push(format!("{step:?}"));
            self.carry_out(step).await?;
            self.check()?;
        }
        self.remove_interruptions();
        self.settle(None).await?;
        let slow = self.choices.below(NODES);
        steps.push(format!("all interruptions end; agent {slow} stalls"));
        self.agent(slow, |agent| agent.stall(true));
        Name::all().for_each(|name| self.api.put(name));
        self.settle(Some(slow)).await?;
        self.agent(slow, |agent| agent.stall(false));
        self.settle(None).await?;
        self.wait_returned().await?;
        self.check_quiet().await
    }

    async fn carry_out(&mut self, step: Step) -> Result<(), Stop> {
        match step {
            Step::Change(changes) => {
                for change in changes {
                    match change {
                        Change::Put(name) => self.api.put(name),
                        Change::Delete(name) => self.api.delete(name),
                    }
                }
            }
            Step::Lag { slot, kind, lag } => self.api.set_lag(slot, kind, lag),
            Step::ApiLink { slot, passage } => self.api.set_passage(slot, passage),
            Step::Link {
                agent,
                slot,
                passage,
                latency,
            } => {
                self.connections.set_passage(agent, slot, passage);
                self.connections
                    .change(agent, slot, |link| link.latency = latency);
            }
            Step::WrongHash { agent, slot } => self.connections.add_wrong_hash(agent, slot),
            Step::Controller { slot, gracefully } => {
                self.start_or_end_controller(slot, gracefully).await?;
            }
            Step::Agent { agent } => self.start_or_end_agent(agent),
            Step::Stall { agent, stalls } => self.agent(agent, |agent| agent.stall(stalls)),
            Step::Fail { agent, fails } => self.agent(agent, |agent| agent.fail(fails)),
            Step::Compact => self.api.compact(),
            Step::BackUp => self.api.back_up(),
            Step::Restore => self.restore().await?,
            Step::Pass(time) => self.pass(time).await?,
        }
        Ok(())
    }

    /// Replaces the store by its last copy. Controllers cannot distinguish older plans of the new store from those of
    /// the former one, so this step is finished before the next one begins.
    async fn restore(&mut self) -> Result<(), Stop> {
        self.remove_interruptions();
        self.settle(None).await?;
        self.witness.restoring();
        if self.api.restore() {
            self.settle(None).await?;
        }
        self.witness.restored();
        Ok(())
    }

    fn start_controller(&mut self, slot: usize) {
        self.runs += 1;
        let pause = self.choices.milliseconds(1, 20);
        let (controller, service) =
            Controller::start(&self.api, &self.witness, (slot, self.runs), pause);
        self.connections.serve(slot, service);
        if let Some(place) = self.controllers.get_mut(slot) {
            *place = Some(controller);
        }
    }

    async fn start_or_end_controller(&mut self, slot: usize, gracefully: bool) -> Result<(), Stop> {
        let Some(Some(running)) = self.controllers.get_mut(slot) else {
            self.start_controller(slot);
            return Ok(());
        };
        if gracefully {
            running.begin_to_end();
            self.pass(GRACE_PERIOD).await?;
        }
        if let Some(place) = self.controllers.get_mut(slot) {
            *place = None;
        }
        self.connections.end(slot);
        self.api.disconnect(slot);
        Ok(())
    }

    fn start_or_end_agent(&mut self, number: usize) {
        let (Some(place), Some(host)) = (self.agents.get_mut(number), self.hosts.get(number))
        else {
            return;
        };
        *place = match place {
            Some(_) => None,
            None => Some(Agent::start(host)),
        };
    }

    fn agent(&self, number: usize, act: impl FnOnce(&Agent)) {
        if let Some(Some(agent)) = self.agents.get(number) {
            act(agent);
        }
    }

    /// Restores all connections, starts what does not run, and lets passes succeed.
    fn remove_interruptions(&mut self) {
        for slot in 0..self.controllers.len() {
            self.api.set_passage(slot, Passage::Up);
            for kind in Kind::ALL {
                self.api.set_lag(slot, kind, Duration::ZERO);
            }
            for agent in 0..NODES {
                self.connections.set_passage(agent, slot, Passage::Up);
            }
            if self.controllers.get(slot).is_some_and(Option::is_none) {
                self.start_controller(slot);
            }
        }
        for (place, host) in self.agents.iter_mut().zip(&self.hosts) {
            let agent = place.get_or_insert_with(|| Agent::start(host));
            agent.stall(false);
            agent.fail(false);
        }
    }

    async fn pass(&self, time: Duration) -> Checked {
        let mut left = time;
        while !left.is_zero() {
            let piece = left.min(CHECK_INTERVAL);
            sleep(piece).await;
            left = left.saturating_sub(piece);
            self.check()?;
        }
        Ok(())
    }

    fn check(&self) -> Checked {
        self.witness.check()?;
        if let Some(text) = self.api.early_list() {
            return violated(Invariant::RareLists, text);
        }
        let running = self.controllers.iter().enumerate();
        let leads = |(slot, place): (usize, &Option<Controller>)| {
            let leads = place.as_ref().is_some_and(Controller::leads);
            leads.then_some(slot)
        };
        let leaders: Vec<usize> = running.filter_map(leads).collect();
        if leaders.len() > 1 {
            let text = format!("controllers {leaders:?} lead at the same time");
            return violated(Invariant::OneLeader, text);
        }
        Ok(())
    }

    /// Waits until all controllers have planned all objects, and all agents but a slow one have the newest plan in
    /// force.
    async fn settle(&self, slow: Option<usize>) -> Result<(), Stop> {
        let expected = expected::hashes(&self.api).map_err(Stop::Broken)?;
        let end = Instant::now() + SETTLE_LIMIT;
        loop {
            let waits_for = self.waits_for(&expected, slow);
            match waits_for {
                None => return Ok(()),
                Some((invariant, text)) if Instant::now() >= end => {
                    return violated(invariant, text).map_err(Stop::from);
                }
                Some(_) => self.pass(CHECK_INTERVAL).await?,
            }
        }
    }

    /// The first controller or agent without the newest plan, and the invariant that requires it to have it.
    fn waits_for(&self, expected: &[PlanHash], slow: Option<usize>) -> Option<(Invariant, String)> {
        for (slot, place) in self.controllers.iter().enumerate() {
            for (of, hash) in expected.iter().enumerate() {
                let planned = place.as_ref().and_then(|controller| controller.hash(of));
                if planned != Some(*hash) {
                    let text = format!("controller {slot} has not the newest plan of node {of}");
                    return Some((Invariant::SamePlans, text));
                }
            }
        }
        for (of, (place, hash)) in self.agents.iter().zip(expected).enumerate() {
            let applied = place.as_ref().and_then(Agent::in_force);
            if applied != Some(*hash) && slow != Some(of) {
                let text = format!("agent {of} has not the newest plan; agent {slow:?} is slow");
                let invariant = match slow {
                    Some(_) => Invariant::SlowAgents,
                    None => Invariant::Settles,
                };
                return Some((invariant, text));
            }
        }
        None
    }

    /// Waits until each agent has a stream to its first controller, and to no other.
    async fn wait_returned(&self) -> Result<(), Stop> {
        let end = Instant::now() + RETURN_LIMIT;
        loop {
            match self.elsewhere() {
                None => return Ok(()),
                Some(text) if Instant::now() >= end => {
                    return violated(Invariant::FirstController, text).map_err(Stop::from);
                }
                Some(_) => self.pass(CHECK_INTERVAL).await?,
            }
        }
    }

    /// The first agent that is not at its first controller.
    fn elsewhere(&self) -> Option<String> {
        self.hosts.iter().enumerate().find_map(|(of, host)| {
            let running = self.controllers.iter().enumerate();
            let serves = |(slot, place): (usize, &Option<Controller>)| {
                let serves = place.as_ref().is_some_and(|running| running.serves(of));
                serves.then_some(slot)
            };
            let (at, first) = (running.filter_map(serves), host.first_controller());
            let at: Vec<usize> = at.collect();
            let is_there = at.len() == 1 && at.first().copied() == first;
            (!is_there).then(|| format!("agent {of} is at controllers {at:?}, not at {first:?}"))
        })
    }

    /// Without changes and interruptions, nothing is listed.
    async fn check_quiet(&self) -> Result<(), Stop> {
        self.pass(RETRY_TIME).await?;
        let before = self.api.lists();
        self.pass(QUIET_TIME).await?;
        let mut listed = Vec::new();
        for ((run, kind), count) in self.api.lists() {
            if before.get(&(run, kind)) != Some(&count) {
                listed.push(format!("{} by run {run} of a controller", kind.name()));
            }
        }
        match listed.is_empty() {
            true => Ok(()),
            false => {
                let text = format!("nothing changed, but was listed: {}", listed.join(", "));
                violated(Invariant::Settles, text).map_err(Stop::from)
            }
        }
    }
}
