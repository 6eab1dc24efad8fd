//! What fails around an agent: the lock of the tables is held, rules cannot be read, IPv6 is off,
//! the disk is full, kernel settings cannot be written, one operation is refused. Each is told as one
//! failure that names what to check, everything else works and follows the plan meanwhile, and once it
//! is over the agent says by itself that the plan is in force.

mod node;
mod tables;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};

use super::extra::{Extra, cluster_ip};
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
    name: "faults",
    shows: "what fails is told once, all else is served and follows the plan, and it heals by itself",
    run,
};

/// The node on which things fail.
const NODE: Node = Node::A;
/// The longest time from one try to the next.
const BACK_OFF: Duration = Duration::from_secs(30);
/// How long a pass and its words may take.
const SOON: Duration = Duration::from_secs(10);
const SETTINGS: &str = "apiVersion: proxy.portolan.dev/v1alpha1\nkind: ProxyConfig\n\
    metadata: {name: default}\nspec:\n  settings:\n    sync: {period: 2s}\n";
/// The Service that is there from the beginning.
const FIRST: u8 = 0;

/// The lab with what runs in it.
struct Scene<'lab> {
    stage: &'lab Stage,
    topology: &'lab Topology,
    cluster: Cluster<'lab>,
    /// The number of the newest Service.
    newest: u8,
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    witness::require_ipvs()?;
    let topology = Topology::build(Network::Routed, stage.waits)?;
    let _pods = Pod::all()
        .map(|pod| Server::start(topology.of(Resident::Pod(pod))?, &pod.name(), &POD_PORTS))
        .collect::<Result<Vec<_>>>()?;
    let mut texts = vec![
        ("settings.yaml".to_owned(), SETTINGS.to_owned()),
        (file(FIRST), Extra::new(FIRST).manifest()),
    ];
    for path in [CLUSTER[0]].into_iter().chain(SCHEDULERS) {
        texts.push((path.replace('/', "-"), stage.files.text(path)?));
    }
    let mut scene = Scene {
        stage,
        topology: &topology,
        cluster: Cluster::new(&topology, stage.waits, texts)?,
        newest: FIRST,
    };
    scene.cluster.start()?;
    for node in Node::ALL {
        scene.cluster.wait_applied(node, 0)?;
    }
    let parts: [fn(&mut Scene<'_>, &mut Checks) -> Result<()>; 6] = [
        node::refused,
        node::read_only,
        node::full_disk,
        tables::not_read,
        tables::locked,
        node::without_ipv6,
    ];
    for part in parts {
        part(&mut scene, checks).map_err(|error| scene.cluster.with_logs(&error))?;
        scene.cluster.check_running()?;
    }
    Ok(())
}

fn file(number: u8) -> String {
    format!("extra-{number}.yaml")
}

/// What an agent called an error, each once, without the figures that change from try to try.
fn errors(said: &str) -> BTreeSet<String> {
    let lines = said
        .lines()
        .filter_map(|line| Some(line.split_once("ERROR ")?.1));
    let causes = lines.filter(|line| !line.contains("the plan is not in force"));
    causes
        .map(|line| line.split(" (and ").next().unwrap_or(line).to_owned())
        .collect()
}

impl Scene<'_> {
    /// How much the agent has said until now.
    fn mark(&self) -> Result<usize> {
        Ok(self.cluster.said(NODE)?.len())
    }

    /// What it said behind a mark.
    fn said(&self, mark: usize) -> Result<String> {
        let mut said = self.cluster.said(NODE)?;
        ensure!(
            mark <= said.len(),
            "the log of {} became shorter",
            NODE.name()
        );
        Ok(said.split_off(mark))
    }

    /// Runs a tool on the node.
    fn tool(&self, program: Program, line: &str) -> Result<String> {
        let words: Vec<_> = line.split(' ').collect();
        self.topology.node(NODE)?.inside(|| program.run(&words))
    }

    fn until(
        &mut self,
        what: &str,
        limit: Duration,
        mut holds: impl FnMut(&Self) -> Result<Result<(), String>>,
    ) -> Result<()> {
        let mut last = String::new();
        let waits = self.stage.waits;
        let waited = waits.until(
            what,
            limit,
            Duration::from_millis(50),
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

    /// Waits until the agent has told one failure and no other, with these words in it.
    fn fails_once(&mut self, mark: usize, words: &[&str]) -> Result<()> {
        self.until("a failure that is told", SOON, |scene| {
            let said = scene.said(mark)?;
            Ok(
                match said.contains("the plan is not in force; trying again") {
                    true => Ok(()),
                    false => Err(said),
                },
            )
        })?;
        self.told_once(mark, words)
    }

    /// Whether it has told one failure and no other.
    fn told_once(&self, mark: usize, words: &[&str]) -> Result<()> {
        let told = errors(&self.said(mark)?);
        ensure!(
            told.len() == 1,
            "it told {} failures: {told:#?}",
            told.len()
        );
        let missing = words
            .iter()
            .find(|words| !told.iter().any(|told| told.contains(**words)));
        match missing {
            None => Ok(()),
            Some(words) => bail!("no {words:?} in {told:?}"),
        }
    }

    /// Waits until the agent says by itself that the plan is in force, within the time between tries.
    fn heals(&mut self, mark: usize) -> Result<()> {
        self.until("the plan to be in force", BACK_OFF + SOON, |scene| {
            let said = scene.said(mark)?;
            let last = said.lines().rfind(|line| line.contains("operations="));
            Ok(match last {
                Some(line) if !line.contains("ERROR") => Ok(()),
                _ => Err(said),
            })
        })
    }

    /// A new Service is served while something fails, and those that were there are, too.
    fn follows(&mut self, families: &[Family]) -> Result<()> {
        self.newest += 1;
        let number = self.newest;
        self.cluster
            .write_manifest(&file(number), &Extra::new(number).manifest())?;
        self.served(number, families)
    }

    /// Waits until a Service is served, and asks for the first one.
    fn served(&mut self, number: u8, families: &[Family]) -> Result<()> {
        self.until("a new Service to be served", SOON, |scene| {
            Ok(scene
                .answers(number, families)
                .map_err(|error| format!("{error:#}")))
        })?;
        self.answers(FIRST, families)
    }

    /// Whether every kind of client is answered.
    fn answers(&self, number: u8, families: &[Family]) -> Result<()> {
        let deadline = self.stage.waits.limit(Duration::from_secs(3));
        let pod = Resident::Pod(Pod {
            node: NODE,
            number: 3,
        });
        for family in families {
            let target = cluster_ip(number, *family)?;
            for from in [pod, Resident::Node(NODE), Resident::Outside] {
                let attempt = || Ok(client::tcp(target, deadline).outcome);
                match self.topology.of(from)?.inside(attempt)? {
                    Outcome::Answered { .. } => {}
                    other => return Err(anyhow!("{} to {target}: {other}", from.name())),
                }
            }
        }
        Ok(())
    }

    /// Ends the agent and starts it again with more on its command line.
    fn restart(&mut self, more: &[&str]) -> Result<()> {
        self.cluster.stop_agent(NODE)?;
        self.cluster.start_agent_with(NODE, more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_apart_without_their_figures() {
        let said = "1 ERROR a: refused (and 3 more like this)\n2 ERROR a: refused (and 4 more like this)\n\
                    3 ERROR the plan is not in force; trying again failed=4\n4 INFO applied\n\
                    5 ERROR b: lost\n";
        let told: Vec<_> = errors(said).into_iter().collect();
        assert_eq!(told, ["a: refused", "b: lost"]);
    }
}
