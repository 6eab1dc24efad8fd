//! Several controllers on a real API server: all serve, one writes, and agents go on with another one when
//! theirs is gone.

mod convergence;
mod delay;
mod lagging;

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use portolan_agent::receive::{Address, Addresses, Controllers, Trust};

use super::rig::{Rig, Size};
use crate::control_plane::{Options, Reach};
use crate::installation;
use crate::light_agents::LightAgents;
use crate::program::{Program, Running};
use crate::scenario::{Checks, Scenario, Stage};

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "replicas",
    shows: "three controllers: all serve, one leads; its end moves agents and the lead; one lags; on which nodes a \
            change is",
    run,
};

const NODES: u8 = 12;
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Until the lead is given back, on hardware: the others look every 2 s.
const GIVEN_BACK: Duration = Duration::from_secs(8);
/// Until it is taken from somebody who is gone: after 15 s without a word.
const TAKEN: Duration = Duration::from_secs(30);
/// Until agents have another controller and its plan.
const MOVED: Duration = Duration::from_secs(30);
/// Until plans are in the store.
const WRITTEN: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

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
    /// It does not run yet.
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
        self.running = Some(Program::Controller.start(&words, &log)?);
        Ok(())
    }

    pub(super) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Where its pages are.
    pub(super) fn pages(&self) -> Option<SocketAddr> {
        let said = self.said();
        // It may have been started more than once.
        let line = said
            .lines()
            .rfind(|line| line.contains("health and metrics"))?;
        let (_, address) = line.split_once("address=")?;
        address.split_whitespace().next()?.parse().ok()
    }
}

/// Starts controllers of these names.
pub(super) fn start_all(rig: &Rig<'_>, names: &[&'static str]) -> Result<Vec<Replica>> {
    let all = names.iter().map(|name| Replica::new(rig, name));
    let mut all = all.collect::<Result<Vec<_>>>()?;
    for replica in &mut all {
        replica.start()?;
    }
    Ok(all)
}

/// Starts agents of the first nodes, which go to any of these controllers.
pub(super) fn connect(rig: &mut Rig<'_>, replicas: &[Replica], nodes: u8) -> Result<()> {
    let sockets = replicas
        .iter()
        .map(|replica| Address::Unix(replica.socket.clone()));
    let ways = Controllers::new(Addresses::Listed(sockets.collect()), Trust::Insecure);
    let nodes = (1..=nodes).map(|number| (format!("node-{number}"), ways.clone()));
    rig.set_agents(LightAgents::start_with(nodes)?);
    Ok(())
}

/// Who holds the lease.
pub(super) fn holder(rig: &Rig<'_>) -> Result<String> {
    let path = "jsonpath={.spec.holderIdentity}";
    let words = ["get", "lease", "controller", "-n", "portolan", "-o", path];
    rig.plane.kubectl(&words)
}

/// The last words of each.
pub(super) fn last_words(replicas: &[Replica]) -> String {
    let mut text = String::new();
    for replica in replicas {
        let said = replica.said();
        let lines: Vec<_> = said.lines().collect();
        for line in &lines[lines.len().saturating_sub(8)..] {
            text += &format!("\n  {}: {line}", replica.name);
        }
    }
    text
}

/// All of them.
struct Replicas<'r, 'a> {
    rig: &'r Rig<'a>,
    stage: &'a Stage,
    all: Vec<Replica>,
}

impl Replicas<'_, '_> {
    /// Waits until one leads that is not this one, and tells which.
    fn wait_leader(&self, but: Option<&str>, limit: Duration) -> Result<&'static str> {
        let other = || {
            let holder = holder(self.rig).unwrap_or_default();
            let names = NAMES.into_iter().filter(|name| Some(*name) != but);
            Ok(names.into_iter().find(|name| *name == holder))
        };
        self.stage
            .waits
            .until("another controller to lead", limit, LOOK, other, || {
                self.said()
            })
    }

    /// The last words of all.
    fn said(&self) -> String {
        last_words(&self.all)
    }

    fn named(&mut self, name: &str) -> Result<&mut Replica> {
        let mut all = self.all.iter_mut();
        all.find(|replica| replica.name == name)
            .context("no such controller")
    }
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let size = Size {
        nodes: NODES,
        pods_a_node: 2,
    };
    let mut rig = Rig::start(stage, Options::default(), &size)?;
    rig.plane.apply(&(SERVICE.to_owned() + &pod(1) + &pod(2)))?;
    let all = start(&rig, stage)?;
    connect(&mut rig, &all, NODES)?;
    let mut replicas = Replicas {
        rig: &rig,
        stage,
        all,
    };
    checks.check("every agent has its plan", rig.wait_first_plans());
    checks.check("from all controllers", serve_some(&replicas));
    convergence::run(&replicas, checks)?;
    // From here on pods only come, so no plan is ever as it was.
    rig.agents()?.begin_history();
    let leader = replicas.wait_leader(None, TAKEN)?;
    checks.check("one of them writes ProxyPlans", written(&replicas));
    stage
        .console
        .line(&format!("controller {leader} leads and is asked to end"));
    let running = replicas.named(leader)?.running.as_mut();
    running.context("it does not run")?.ask_to_end()?;
    let second = replicas.wait_leader(Some(leader), GIVEN_BACK)?;
    checks.check("another one leads at once", Ok(()));
    rig.plane.apply(&pod(3))?;
    checks.check("agents follow what remains", rig.wait_equal(MOVED));
    checks.check("and it writes ProxyPlans", follows(&replicas, 3));
    replicas.named(leader)?.running = None;
    replicas.named(leader)?.start()?;
    stage
        .console
        .line(&format!("controller {second} leads and is killed"));
    let running = replicas.named(second)?.running.take();
    running.context("it does not run")?.kill()?;
    rig.plane.apply(&pod(4))?;
    checks.check("agents follow what remains again", rig.wait_equal(MOVED));
    let third = replicas.wait_leader(Some(second), TAKEN)?;
    stage.console.line(&format!("controller {third} leads"));
    rig.plane.apply(&pod(5))?;
    checks.check("agents follow the third one as well", rig.wait_equal(MOVED));
    checks.check("which writes ProxyPlans as well", follows(&replicas, 5));
    lagging::run(&mut replicas, second, checks)?;
    checks.check("nobody does what it may not", rights(&replicas));
    Ok(())
}

/// Starts all of them, and waits until they listen: agents begin at different ones, and at another one
/// where theirs is not there yet.
fn start(rig: &Rig<'_>, stage: &Stage) -> Result<Vec<Replica>> {
    let all = start_all(rig, &NAMES)?;
    let listen = || {
        Ok(all
            .iter()
            .all(|replica| replica.socket.exists())
            .then_some(()))
    };
    stage
        .waits
        .until("every controller to listen", MOVED, LOOK, listen, || {
            all.iter().map(Replica::said).collect()
        })?;
    Ok(all)
}

/// Agents began at different ones.
fn serve_some(replicas: &Replicas<'_, '_>) -> Result<()> {
    for replica in &replicas.all {
        let said = replica.said();
        ensure!(
            said.contains("agent connected"),
            "{} serves nobody",
            replica.name
        );
    }
    Ok(())
}

fn written(replicas: &Replicas<'_, '_>) -> Result<()> {
    let count = || -> Result<usize> {
        let plans = replicas.rig.plane.kubectl(&["get", "pp", "-o", "name"])?;
        Ok(plans.lines().count())
    };
    let all = || Ok((count()? == usize::from(NODES)).then_some(()));
    replicas
        .stage
        .waits
        .until("a ProxyPlan for each node", WRITTEN, LOOK, all, || {
            replicas.said()
        })?;
    let leading = |replica: &&Replica| replica.said().contains("this controller leads");
    let leaders = replicas.all.iter().filter(leading).count();
    ensure!(leaders == 1, "{leaders} lead");
    Ok(())
}

/// The plan of a node names the Service whose endpoint it has got.
fn follows(replicas: &Replicas<'_, '_>, node: u8) -> Result<()> {
    let node = format!("node-{node}");
    let path = "jsonpath={.spec.services[*].name}";
    let words = ["get", "pp", &node, "-o", path];
    let named = || Ok((replicas.rig.plane.kubectl(&words)? == "near").then_some(()));
    replicas
        .stage
        .waits
        .until("the ProxyPlan to name it", WRITTEN, LOOK, named, || {
            replicas.said()
        })
}

fn rights(replicas: &Replicas<'_, '_>) -> Result<()> {
    let forbidden = replicas.rig.audit()?.forbidden();
    ensure!(forbidden.is_empty(), "they were forbidden to {forbidden:?}");
    for replica in &replicas.all {
        ensure!(
            !replica.said().contains("panicked"),
            "{} panicked",
            replica.name
        );
    }
    Ok(())
}
