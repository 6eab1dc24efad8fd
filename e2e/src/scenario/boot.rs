//! A node that comes up while no controller can be reached: after a restart of its agent, and after a
//! power failure with a plan on its disk that is fresh, old, or damaged.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::extra::{self, Extra};
use super::packet_path::POD_PORTS;
use super::{Checks, Scenario, Stage};
use crate::cluster::Cluster;
use crate::files::CLUSTER;
use crate::program::Program;
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::topology::{Network, Topology};
use crate::traffic::client::{self, Outcome};
use crate::traffic::server::Server;
use crate::{mounts, witness};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "boot",
    shows: "without a controller a node serves the plan on its disk, as far as that can be trusted",
    run,
};

/// The node that loses its power.
const NODE: Node = Node::A;
/// How long the agent may need for what it does at once.
const SOON: Duration = Duration::from_secs(10);
/// What is not served must not be for so long.
const QUIET: Duration = Duration::from_secs(2);
/// The setting `disk.grace` of these clusters.
const GRACE: u32 = 15;

struct Scene<'lab> {
    stage: &'lab Stage,
    topology: &'lab Topology,
    cluster: Cluster<'lab>,
    /// How often the node was started.
    boots: u32,
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    witness::require_ipvs()?;
    let topology = Topology::build(Network::Routed, stage.waits)?;
    let _pods = Pod::all()
        .map(|pod| Server::start(topology.of(Resident::Pod(pod))?, &pod.name(), &POD_PORTS))
        .collect::<Result<Vec<_>>>()?;
    let texts = [
        (CLUSTER[0].replace('/', "-"), stage.files.text(CLUSTER[0])?),
        (SETTINGS.to_owned(), settings(600, GRACE)),
        ("first.yaml".to_owned(), service(FIRST)),
        ("second.yaml".to_owned(), service(SECOND)),
    ];
    let mut scene = Scene {
        stage,
        topology: &topology,
        cluster: Cluster::new(&topology, stage.waits, texts)?,
        boots: 0,
    };
    scene.cluster.start()?;
    for node in Node::ALL {
        scene.cluster.wait_applied(node, 0)?;
    }
    let parts: [fn(&mut Scene<'_>, &mut Checks) -> Result<()>; 4] =
        [agent_restarts, fresh_plan, old_plan, damaged_plan];
    for part in parts {
        part(&mut scene, checks).map_err(|error| scene.cluster.with_logs(&error))?;
    }
    Ok(())
}

const SETTINGS: &str = "settings.yaml";
/// The Service that the cluster needs to come up.
const FIRST: u8 = 1;
/// One that can wait.
const SECOND: u8 = 2;

/// How long a plan on disk is young, and how long a controller is waited for, in seconds.
fn settings(max_age: u32, grace: u32) -> String {
    format!(
        "apiVersion: proxy.portolan.dev/v1alpha1\nkind: ProxyConfig\nmetadata: {{name: default}}\n\
         spec:\n  settings:\n    disk: {{maxAge: {max_age}s, grace: {grace}s}}\n"
    )
}

fn service(number: u8) -> String {
    let mut extra = Extra::new(number);
    if number == FIRST {
        extra.annotations = "proxy.portolan.dev/boot-critical: \"true\"";
    }
    extra.manifest()
}

/// The agent ends, and somebody empties the kernel before it comes back.
fn agent_restarts(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    scene.stage.console.heading("the agent restarts");
    scene.cluster.stop_agent(NODE)?;
    scene.cluster.kill_controller()?;
    scene.empty()?;
    scene.cluster.start_agent(NODE)?;
    checks.check(
        "an agent that restarts serves all of its plan without a controller",
        scene.until_served(&[FIRST, SECOND]),
    );
    // A plan that is older than the kernel: what it does not name stays as it is (S-183).
    let old = std::fs::read(scene.plan())?;
    scene.cluster.start_controller()?;
    let before = scene.cluster.applied(NODE)?.len();
    scene
        .cluster
        .write_manifest("third.yaml", &service(THIRD))?;
    scene.cluster.wait_applied(NODE, before)?;
    scene.until_served(&[FIRST, SECOND, THIRD])?;
    scene.cluster.kill_controller()?;
    scene.cluster.stop_agent(NODE)?;
    std::fs::write(scene.plan(), old)?;
    let mark = scene.mark()?;
    scene.cluster.start_agent(NODE)?;
    scene.until_said(mark, "what is on disk of the plan is in force")?;
    checks.check(
        "what is in the kernel and not in the plan on disk goes on (S-183)",
        scene.served(&[FIRST, SECOND, THIRD]),
    );
    let before = scene.cluster.applied(NODE)?.len();
    std::fs::remove_file(scene.cluster.manifests().join("third.yaml"))?;
    scene.cluster.start_controller()?;
    scene.cluster.wait_applied(NODE, before)?;
    checks.check(
        "and goes once a controller says so",
        scene.until_refused(THIRD),
    );
    Ok(())
}

const THIRD: u8 = 3;

fn fresh_plan(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    scene
        .stage
        .console
        .heading("a power failure, and a fresh plan");
    scene.save()?;
    scene.power_failure()?;
    checks.check("the node is empty", scene.is_empty());
    let mark = scene.mark()?;
    scene.come_up()?;
    checks.check(
        "a fresh plan is served whole before any controller",
        scene.until_served(&[FIRST, SECOND]),
    );
    checks.check(
        "the log says that it is the one on disk",
        scene.until_said(mark, "serving the plan on disk"),
    );
    let before = scene.cluster.applied(NODE)?.len();
    scene.cluster.start_controller()?;
    let operations = scene.cluster.wait_applied(NODE, before);
    checks.check(
        "a controller that comes back finds nothing to change",
        operations.and_then(|operations| {
            ensure!(
                operations.iter().all(|count| *count == 0),
                "{operations:?} operations"
            );
            Ok(())
        }),
    );
    Ok(())
}

fn old_plan(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    scene
        .stage
        .console
        .heading("a power failure, and an old plan");
    let before = scene.cluster.applied(NODE)?.len();
    scene
        .cluster
        .write_manifest(SETTINGS, &settings(1, GRACE))?;
    scene.cluster.wait_applied(NODE, before)?;
    scene.save()?;
    scene.power_failure()?;
    // Older than the second for which it is trusted.
    std::thread::sleep(Duration::from_secs(3));
    scene.come_up()?;
    checks.check(
        "of an old plan boot-critical Services are served",
        scene.until_served(&[FIRST]),
    );
    checks.check("and no others", scene.stays_unserved(SECOND));
    let grace = scene.stage.waits.limit(Duration::from_secs(GRACE.into()));
    checks.check(
        "but all when no controller has come",
        scene.until_served_within(&[FIRST, SECOND], grace + SOON),
    );
    scene.cluster.start_controller()?;
    Ok(())
}

fn damaged_plan(scene: &mut Scene<'_>, checks: &mut Checks) -> Result<()> {
    scene
        .stage
        .console
        .heading("a power failure, and a damaged plan");
    scene.save()?;
    scene.power_failure()?;
    let mut plan = std::fs::read(scene.plan())?;
    let middle = plan.len() / 2;
    *plan.get_mut(middle).context("the plan is empty")? ^= 1;
    std::fs::write(scene.plan(), plan)?;
    let mark = scene.mark()?;
    scene.come_up()?;
    checks.check(
        "a damaged plan is told",
        scene.until_said(mark, "it is damaged: its checksum is wrong"),
    );
    checks.check("and nothing of it served", scene.stays_unserved(FIRST));
    checks.check(
        "nothing is written without a plan (S-183)",
        scene.is_empty(),
    );
    scene.cluster.start_controller()?;
    checks.check(
        "the next plan of a controller is served",
        scene.until_served(&[FIRST, SECOND]),
    );
    scene.save()?;
    // In order, so that the plan on disk is one of this boot.
    scene.cluster.stop_agent(NODE)?;
    scene.cluster.kill_controller()?;
    scene.empty()?;
    scene.cluster.start_agent(NODE)?;
    checks.check(
        "and takes the place of the damaged one on disk",
        scene.until_served(&[FIRST, SECOND]),
    );
    Ok(())
}

impl Scene<'_> {
    fn plan(&self) -> PathBuf {
        self.cluster.state_folder(NODE).join("plan")
    }

    fn mark(&self) -> Result<usize> {
        Ok(self.cluster.said(NODE)?.len())
    }

    fn until_said(&mut self, mark: usize, words: &str) -> Result<()> {
        self.until(&format!("{words:?} in the log"), SOON, |scene| {
            let said = scene.cluster.said(NODE)?;
            Ok(said.get(mark..).is_some_and(|said| said.contains(words)))
        })
    }

    fn until(
        &mut self,
        what: &str,
        limit: Duration,
        mut holds: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<()> {
        let waits = self.stage.waits;
        let every = Duration::from_millis(50);
        waits.until(
            what,
            limit,
            every,
            || {
                self.cluster.check_running()?;
                Ok(holds(self)?.then_some(()))
            },
            || "it did not come".to_owned(),
        )
    }

    /// The plan as it is now is on disk: an agent that ends in order writes it.
    fn save(&mut self) -> Result<()> {
        self.cluster.stop_agent(NODE)?;
        ensure!(self.plan().exists(), "no plan on disk");
        let before = self.cluster.applied(NODE)?.len();
        self.cluster.start_agent(NODE)?;
        self.cluster.wait_applied(NODE, before).map(drop)
    }

    /// Everything on the node ends at once, its kernel is empty, and nobody else is there.
    fn power_failure(&mut self) -> Result<()> {
        self.cluster.kill_agent(NODE)?;
        self.cluster.kill_controller()?;
        self.empty()
    }

    /// Empties the kernel; the disk stays as it is.
    fn empty(&self) -> Result<()> {
        let elsewhere = self.cluster.beside("elsewhere").display().to_string();
        let words = ["cleanup", "--state-dir", &elsewhere];
        self.topology
            .node(NODE)?
            .inside(|| Program::Agent.run(&words))?;
        Ok(())
    }

    /// The agent starts in a kernel that says it was started anew.
    fn come_up(&mut self) -> Result<()> {
        self.boots += 1;
        let name = self.cluster.beside("boot");
        let boot = format!("00000000-0000-4000-8000-{:012}\n", self.boots);
        std::fs::write(&name, boot).with_context(|| format!("write {}", name.display()))?;
        self.cluster
            .start_agent_after(NODE, &[], || mounts::rename_boot(&name))
    }

    fn is_empty(&self) -> Result<()> {
        let found = witness::virtual_servers(self.topology.node(NODE)?)?;
        ensure!(found.is_empty(), "there is {found:?}");
        Ok(())
    }

    fn until_served(&mut self, services: &[u8]) -> Result<()> {
        self.until_served_within(services, SOON)
    }

    fn until_served_within(&mut self, services: &[u8], limit: Duration) -> Result<()> {
        self.until("Services to be served", limit, |scene| {
            Ok(scene.served(services).is_ok())
        })?;
        self.served(services)
    }

    fn until_refused(&mut self, service: u8) -> Result<()> {
        self.until("a Service to be gone", SOON, |scene| {
            Ok(scene.served(&[service]).is_err())
        })
    }

    fn stays_unserved(&self, service: u8) -> Result<()> {
        let end = std::time::Instant::now() + QUIET;
        while std::time::Instant::now() < end {
            ensure!(self.served(&[service]).is_err(), "it is served");
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Whether a pod, the node and an outsider are answered, over both families.
    fn served(&self, services: &[u8]) -> Result<()> {
        let deadline = self.stage.waits.limit(Duration::from_secs(1));
        let pod = Resident::Pod(Pod {
            node: NODE,
            number: 3,
        });
        for service in services {
            for family in Family::ALL {
                let target: SocketAddr = extra::cluster_ip(*service, family)?;
                for from in [pod, Resident::Node(NODE), Resident::Outside] {
                    let attempt = || Ok(client::tcp(target, deadline).outcome);
                    let outcome = self.topology.of(from)?.inside(attempt)?;
                    ensure!(
                        matches!(outcome, Outcome::Answered { .. }),
                        "{} to {target}: {outcome}",
                        from.name()
                    );
                }
            }
        }
        Ok(())
    }
}
