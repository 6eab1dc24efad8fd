//! What others do to the kernel while agents run: put right within the sync period and counted by
//! kind, or only reported; what belongs to others stays, also when everything of ours goes. And in a
//! steady state nothing is written at all, which a witness outside of the agent sees.

mod hand;
mod report;
mod steady;
mod tracer;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::packet_path::POD_PORTS;
use super::{Checks, Scenario, Stage};
use crate::cluster::Cluster;
use crate::files::{CLUSTER, SCHEDULERS};
use crate::program::Program;
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::topology::{Network, Topology};
use crate::traffic::client::{self, Outcome};
use crate::traffic::server::Server;
use crate::witness;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "drift",
    shows: "what others change is put right or reported, theirs stays, a steady state writes nothing",
    run,
};

/// The file of the settings.
const SETTINGS: &str = "settings.yaml";
/// How long after a change everything has to be right: the sync period is 2 s here.
const IN_TIME: Duration = Duration::from_secs(10);
/// Whose scheduler, real servers and frontends are changed.
const TURN: &str = "10.96.2.1:80";

type State = BTreeMap<&'static str, String>;

/// The lab with what runs in it.
struct Scene<'lab> {
    stage: &'lab Stage,
    topology: &'lab Topology,
    cluster: Cluster<'lab>,
    services: String,
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    witness::require_ipvs()?;
    let topology = Topology::build(Network::Routed, stage.waits)?;
    let _pods = Pod::all()
        .map(|pod| Server::start(topology.of(Resident::Pod(pod))?, &pod.name(), &POD_PORTS))
        .collect::<Result<Vec<_>>>()?;
    topology.node(Node::A)?.inside(hand::make_others)?;
    let before = witness::everything(topology.node(Node::A)?)?;
    let mut texts = vec![(SETTINGS.to_owned(), settings("Repair"))];
    for path in [CLUSTER[0]].into_iter().chain(SCHEDULERS) {
        texts.push((path.replace('/', "-"), stage.files.text(path)?));
    }
    let mut scene = Scene {
        stage,
        topology: &topology,
        services: stage.files.text(SCHEDULERS[0])?,
        cluster: Cluster::new(&topology, stage.waits, texts)?,
    };
    scene.cluster.start()?;
    for node in Node::ALL {
        scene.cluster.wait_applied(node, 0)?;
    }
    let parts: [fn(&mut Scene<'_>, &mut Checks) -> Result<()>; 3] =
        [hand::run, report::run, steady::run];
    for part in parts {
        part(&mut scene, checks).map_err(|error| scene.cluster.with_logs(&error))?;
        scene.cluster.check_running()?;
    }
    ends(&mut scene, checks, &before)
}

/// A lost record, and a cleanup.
fn ends(scene: &mut Scene<'_>, checks: &mut Checks, before: &State) -> Result<()> {
    let right = scene.state()?;
    checks.check("agents end with status 0 after SIGTERM", {
        let mut nodes = Node::ALL.into_iter();
        nodes.try_for_each(|node| scene.cluster.stop_agent(node))
    });
    checks.check(
        "an agent that lost its record writes nothing, and takes nothing of others (S-109)",
        without_a_record(scene, &right),
    );
    scene.cluster.stop_agent(Node::A)?;
    let what = "cleanup leaves virtual servers, sets, rules and routes of others (S-109, S-197)";
    let ended = scene.cluster.clean_up(Node::A)?;
    checks.check(what, {
        if ended.status.success() {
            witness::must_equal(before, &witness::everything(scene.topology.node(Node::A)?)?)
        } else {
            Err(anyhow::anyhow!("it ended with {}", ended.errors.trim()))
        }
    });
    Ok(())
}

fn without_a_record(scene: &mut Scene<'_>, right: &State) -> Result<()> {
    scene.cluster.lose_record(Node::A)?;
    let batches = scene.cluster.applied(Node::A)?.len();
    scene.cluster.start_agent(Node::A)?;
    let operations = scene.cluster.wait_applied(Node::A, batches)?;
    ensure!(
        operations.iter().all(|n| *n == 0),
        "{operations:?} operations"
    );
    witness::must_equal(right, &scene.state()?)
}

fn settings(drift: &str) -> String {
    format!(
        "apiVersion: proxy.portolan.dev/v1alpha1\nkind: ProxyConfig\nmetadata: {{name: default}}\n\
         spec:\n  settings:\n    sync: {{period: 2s}}\n    drift: {drift}\n"
    )
}

impl Scene<'_> {
    /// Puts a manifest in force on both nodes.
    fn put(&mut self, file: &str, text: &str) -> Result<()> {
        let before = Node::ALL.map(|node| self.cluster.applied(node).map(|all| all.len()));
        self.cluster.write_manifest(file, text)?;
        for (node, before) in Node::ALL.into_iter().zip(before) {
            self.cluster.wait_applied(node, before?)?;
        }
        Ok(())
    }

    /// Changes the scheduler of one Service: the smallest change of a plan.
    fn turn(&mut self, from: &str, to: &str) -> Result<()> {
        let words = |scheduler| format!("proxy.portolan.dev/scheduler: {scheduler:?}");
        let times = self.services.matches(&words(from)).count();
        ensure!(times == 1, "{from} is {times} times in the manifest");
        self.services = self.services.replace(&words(from), &words(to));
        let text = self.services.clone();
        self.put(&SCHEDULERS[0].replace('/', "-"), &text)
    }

    /// All that matters on node-a. The device gets another number when it is made anew.
    fn state(&self) -> Result<State> {
        let mut all = witness::everything(self.topology.node(Node::A)?)?;
        all.remove("links");
        Ok(all)
    }

    /// Runs a tool on node-a.
    fn tool(&self, program: Program, line: &str) -> Result<String> {
        let words: Vec<_> = line.split(' ').collect();
        self.topology.node(Node::A)?.inside(|| program.run(&words))
    }

    /// What the agent of node-a said behind what it had said before.
    fn said(&self, before: usize) -> Result<String> {
        let mut said = self.cluster.said(Node::A)?;
        ensure!(before <= said.len(), "the log of node-a became shorter");
        Ok(said.split_off(before))
    }

    /// Waits until it is so; what is seen instead is told.
    fn until(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&Self) -> Result<Result<(), String>>,
    ) -> Result<()> {
        let mut last = String::new();
        let waits = self.stage.waits;
        let step = Duration::from_millis(50);
        let waited = waits.until(
            what,
            IN_TIME,
            step,
            || {
                self.cluster.check_running()?;
                match holds(self)? {
                    Ok(()) => Ok(Some(())),
                    Err(seen) => {
                        last = seen;
                        Ok(None)
                    }
                }
            },
            || "see below".to_owned(),
        );
        waited.map_err(|error| error.context(last))
    }

    /// Whether every kind of client is answered over both families.
    fn answers(&self) -> Result<()> {
        let deadline = self.stage.waits.limit(Duration::from_secs(3));
        let pod = Resident::Pod(Pod {
            node: Node::A,
            number: 3,
        });
        for family in Family::ALL {
            let target = match family {
                Family::IPv4 => TURN,
                Family::IPv6 => "[fd00:10:96::201]:80",
            };
            let target = target.parse().context("an address")?;
            for from in [pod, Resident::Node(Node::A), Resident::Outside] {
                let attempt = || Ok(client::tcp(target, deadline).outcome);
                match self.topology.of(from)?.inside(attempt)? {
                    Outcome::Answered { .. } => {}
                    other => bail!("{} over {family}: {other}", from.name()),
                }
            }
        }
        Ok(())
    }
}
