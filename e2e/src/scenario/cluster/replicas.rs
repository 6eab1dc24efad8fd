//! Several controllers on a real API server: all serve, one writes, and agents move to another controller when theirs
//! ends.

mod convergence;
mod delay;
mod failover;
mod lagging;
mod partitioned;
mod returning;

use std::collections::BTreeSet;
use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail, ensure};
use portolan_agent::receive::{Address, Addresses, Controllers, Trust};
use portolan_plan::PlanHash;

use super::rig::Rig;
use crate::checks::Checks;
use crate::control_plane::{Options, Reach};
use crate::harness::{Environment, run_parts};
use crate::installation;
use crate::light_agents::LightAgents;
use crate::logs;
use crate::program::{Program, Running};
use crate::scenario::Scenario;
use crate::stage::Stage;

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "replicas",
    shows: "three controllers: all serve, one leads; its end moves agents and leadership; one \
        lags; convergence of a change; agents spread again; failover during changes; in the long \
        form, partitions from the API server",
    run,
};

const NODES: u8 = 12;
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Until a released lease is taken, on hardware: the others check every 2 s.
const GIVEN_BACK: Duration = Duration::from_secs(8);
/// Until the lease of a killed leader is taken: it expires after 15 s.
const TAKEN: Duration = Duration::from_secs(30);
/// Until agents are connected to another controller and have its plan.
const MOVED: Duration = Duration::from_secs(30);
/// Until plans are in the store.
const WRITTEN: Duration = Duration::from_secs(60);

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: near}
spec:
  selector: {app: web}
  internalTrafficPolicy: Local
  ports: [{name: http, port: 80, targetPort: 8080}]
";

fn pod(number: u8) -> String {
    format!(
        "\n---\napiVersion: v1\nkind: Pod\nmetadata: {{name: web-{number}, labels: {{app: web}}}}\nspec: {{nodeName: node-{number}, containers: [{{name: web, image: none, ports: [{{containerPort: 8080}}]}}]}}\n"
    )
}

/// One of the controllers.
pub(super) struct Replica {
    pub(super) name: &'static str,
    pub(super) running: Option<Running>,
    pub(super) socket: PathBuf,
    log: PathBuf,
    kubeconfig: PathBuf,
}

impl Replica {
    /// Prepares a controller that does not run yet.
    pub(super) fn new(rig: &Rig<'_>, name: &'static str) -> Result<Self> {
        let user = installation::CONTROLLER;
        Ok(Self {
            name,
            running: None,
            socket: rig.file(&format!("{name}.sock")),
            log: rig.file(&format!("{name}.log")),
            kubeconfig: rig.plane.user(user, None, Reach::Here)?,
        })
    }

    pub(super) fn start(&mut self) -> Result<()> {
        self.start_by(Program::Controller, &[])
    }

    /// The same, with a limit of open files, soft and hard.
    pub(super) fn start_within(&mut self, files: u32) -> Result<()> {
        let limit = format!("--nofile={files}:{files}");
        let controller = Program::Controller.path()?.display().to_string();
        self.start_by(Program::Prlimit, &[&limit, &controller])
    }

    fn start_by(&mut self, program: Program, before: &[&str]) -> Result<()> {
        let listen = format!("unix:{}", self.socket.display());
        let kubeconfig = self.kubeconfig.display().to_string();
        let words = [
            "run",
            "--kubeconfig",
            &kubeconfig,
            "--listen",
            &listen,
            "--insecure",
            "--admin",
            "127.0.0.1:0",
            "--lease",
            "portolan/controller",
            "--name",
            self.name,
        ];
        let log = File::options().create(true).append(true).open(&self.log)?;
        self.running = Some(program.start(&[before, &words].concat(), &log)?);
        Ok(())
    }

    pub(super) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its log since its last start.
    pub(super) fn said_since_start(&self) -> String {
        let said = self.said();
        let last = said.rsplit_once(": started ").map(|(_, last)| last);
        last.unwrap_or(&said).to_owned()
    }

    /// The address of its health and metrics pages.
    pub(super) fn pages(&self) -> Option<SocketAddr> {
        let said = self.said();
        // It may have been started more than once, so the last line counts.
        let line = said
            .lines()
            .rfind(|line| line.contains("health and metrics"))?;
        let (_, address) = line.split_once("address=")?;
        address.split_whitespace().next()?.parse().ok()
    }
}

/// Several controllers on one control plane, and agents that go to any of them.
pub(super) struct Replicas<'a> {
    // Fields are dropped in this order: controllers before their control plane.
    pub(super) all: Vec<Replica>,
    pub(super) rig: Rig<'a>,
}

impl<'a> Replicas<'a> {
    /// Starts controllers of these names.
    pub(super) fn start(rig: Rig<'a>, names: &[&'static str]) -> Result<Self> {
        let all = names.iter().map(|name| Replica::new(&rig, name));
        let mut all = all.collect::<Result<Vec<_>>>()?;
        for replica in &mut all {
            replica.start()?;
        }
        Ok(Self { all, rig })
    }

    /// Starts agents of the first nodes, which may connect to any of the controllers.
    pub(super) fn connect(&mut self, nodes: u8) -> Result<()> {
        let ways = self.ways();
        self.connect_by(nodes, &ways)
    }

    /// The ways of agents to all controllers.
    fn ways(&self) -> Controllers {
        let sockets = self
            .all
            .iter()
            .map(|replica| Address::Unix(replica.socket.clone()));
        Controllers::new(Addresses::Listed(sockets.collect()), Trust::Insecure)
    }

    fn connect_by(&mut self, nodes: u8, ways: &Controllers) -> Result<()> {
        let nodes = (1..=nodes).map(|number| (format!("node-{number}"), ways.clone()));
        self.rig.set_agents(LightAgents::start_with(nodes)?);
        Ok(())
    }

    /// The holder of the lease.
    pub(super) fn holder(&self) -> Result<String> {
        let path = "jsonpath={.spec.holderIdentity}";
        let words = ["get", "lease", "controller", "-n", "portolan", "-o", path];
        self.rig.plane.kubectl(&words)
    }

    pub(super) fn named(&mut self, name: &str) -> Result<&mut Replica> {
        let mut all = self.all.iter_mut();
        all.find(|replica| replica.name == name)
            .context("no such controller")
    }

    /// The hash of each agent's plan.
    pub(super) fn hashes(&self) -> Result<Vec<Option<PlanHash>>> {
        let agents = self.rig.agents()?;
        Ok(agents.nodes().map(|node| agents.hash(node)).collect())
    }

    /// As [`Rig::eventually`], with the last lines of the controllers' logs behind a failure.
    pub(super) fn eventually<T>(
        &self,
        what: &str,
        on_hardware: Duration,
        ask: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        self.rig
            .eventually(what, on_hardware, ask)
            .map_err(|error| self.with_logs(error))
    }

    /// Waits for a leader other than `but`, and returns its name.
    fn wait_leader(&self, but: Option<&str>, limit: Duration) -> Result<&'static str> {
        self.eventually("another controller to lead", limit, || {
            let holder = self.holder()?;
            let other = |name: &&str| **name == *holder && Some(*name) != but;
            NAMES
                .into_iter()
                .find(other)
                .with_context(|| format!("{holder:?} leads"))
        })
    }
}

impl Environment for Replicas<'_> {
    fn check_running(&self) -> Result<()> {
        self.rig.plane.check_running()?;
        for replica in &self.all {
            let ended = replica.running.as_ref().map_or(Ok(None), Running::ended)?;
            let name = replica.name;
            ensure!(ended.is_none(), "controller {name} ended with {ended:?}");
            ensure!(!replica.said().contains("panicked"), "{name} panicked");
        }
        Ok(())
    }

    fn with_logs(&self, error: Error) -> Error {
        logs::attach(error, || {
            let replicas = self.all.iter();
            let last = replicas.map(|replica| logs::tail(replica.name, &replica.said(), 8));
            self.rig.plane.last_words() + &last.collect::<String>()
        })
    }
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let rig = Rig::start(stage, Options::default(), NODES, 2)?;
    rig.plane.apply(&(SERVICE.to_owned() + &pod(1) + &pod(2)))?;
    let mut replicas = Replicas::start(rig, &NAMES)?;
    wait_listen(&replicas)?;
    replicas.connect(NODES)?;
    run_parts(
        &mut replicas,
        checks,
        &[
            ("all serve", all_serve),
            ("convergence", convergence::run),
            ("agents that return", returning::run),
            ("failover under churn", failover::run),
            ("leaders that end", leaders),
        ],
    )?;
    drop(replicas);
    if stage.long {
        partitioned::run(stage, checks)?;
    }
    Ok(())
}

fn all_serve(replicas: &mut Replicas<'_>, checks: &mut Checks) -> Result<()> {
    checks.check("every agent has its plan", replicas.rig.wait_first_plans());
    checks.check("from all controllers", serve_some(replicas));
    Ok(())
}

fn leaders(replicas: &mut Replicas<'_>, checks: &mut Checks) -> Result<()> {
    let console = replicas.rig.stage.console;
    // From here on pods are only added, so no plan returns to an earlier state.
    replicas.rig.agents()?.begin_history();
    let leader = replicas.wait_leader(None, TAKEN)?;
    checks.check("one of them writes ProxyPlans", written(replicas));
    console.line(&format!("controller {leader} leads and is asked to end"));
    let running = replicas.named(leader)?.running.as_ref();
    running.context("it does not run")?.ask_to_end()?;
    let second = replicas.wait_leader(Some(leader), GIVEN_BACK)?;
    checks.check("another controller leads at once", Ok(()));
    replicas.rig.plane.apply(&pod(3))?;
    checks.check(
        "agents follow the remaining controllers",
        replicas.rig.wait_equal(MOVED),
    );
    checks.check("and it writes ProxyPlans", follows(replicas, 3));
    replicas.named(leader)?.running = None;
    replicas.named(leader)?.start()?;
    console.line(&format!("controller {second} leads and is killed"));
    let running = replicas.named(second)?.running.take();
    running.context("it does not run")?.kill()?;
    replicas.rig.plane.apply(&pod(4))?;
    checks.check(
        "agents follow the remaining controller",
        replicas.rig.wait_equal(MOVED),
    );
    let third = replicas.wait_leader(Some(second), TAKEN)?;
    console.line(&format!("controller {third} leads"));
    replicas.rig.plane.apply(&pod(5))?;
    checks.check(
        "agents follow the third controller as well",
        replicas.rig.wait_equal(MOVED),
    );
    checks.check("which writes ProxyPlans as well", follows(replicas, 5));
    lagging::run(replicas, second, checks)?;
    checks.check(
        "no controller needs more permissions than it has",
        rights(replicas),
    );
    Ok(())
}

/// Waits until all controllers listen. Agents begin at different ones, and would move on if theirs did not listen
/// yet.
fn wait_listen(replicas: &Replicas<'_>) -> Result<()> {
    replicas.eventually("every controller to listen", MOVED, || {
        let mut all = replicas.all.iter();
        match all.find(|replica| !replica.socket.exists()) {
            Some(replica) => bail!("{} does not", replica.name),
            None => Ok(()),
        }
    })
}

/// Fails unless each controller that is the first one of a node serves some agents.
fn serve_some(replicas: &Replicas<'_>) -> Result<()> {
    let mut first = BTreeSet::new();
    for node in replicas.rig.agents()?.nodes() {
        first.insert(replicas.ways().choose(node, 0)?.to_string());
    }
    ensure!(first.len() > 1, "all agents have the same first controller");
    for replica in &replicas.all {
        let is_first = first.contains(&format!("unix:{}", replica.socket.display()));
        let serves = replica.said().contains("agent connected");
        ensure!(serves || !is_first, "{} serves no agent", replica.name);
    }
    Ok(())
}

fn written(replicas: &Replicas<'_>) -> Result<()> {
    replicas.eventually("a ProxyPlan for each node", WRITTEN, || {
        let plans = replicas.rig.plane.kubectl(&["get", "pp", "-o", "name"])?;
        let count = plans.lines().count();
        ensure!(count == usize::from(NODES), "there are {count}");
        Ok(())
    })?;
    let leading = |replica: &&Replica| replica.said_since_start().contains("this controller leads");
    let leaders = replicas.all.iter().filter(leading).count();
    ensure!(leaders == 1, "{leaders} lead");
    Ok(())
}

/// Waits until the plan of a node names the Service of its new endpoint.
fn follows(replicas: &Replicas<'_>, node: u8) -> Result<()> {
    let node = format!("node-{node}");
    let path = "jsonpath={.spec.services[*].name}";
    let words = ["get", "pp", &node, "-o", path];
    replicas.eventually("the ProxyPlan to name it", WRITTEN, || {
        let names = replicas.rig.plane.kubectl(&words)?;
        ensure!(names == "near", "it names {names:?}");
        Ok(())
    })
}

fn rights(replicas: &Replicas<'_>) -> Result<()> {
    replicas.rig.audit()?.nothing_forbidden()?;
    for replica in &replicas.all {
        ensure!(
            !replica.said().contains("panicked"),
            "{} panicked",
            replica.name
        );
    }
    Ok(())
}
