//! A node that comes up while no controller can be reached: after a restart of its agent, and after a
//! power failure with a plan on its disk that is fresh, old, or damaged.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::extra::{self, Extra};
use super::{Checks, Scenario, Stage};
use crate::files::CLUSTER;
use crate::harness::{self, proxy_config, wrote_nothing};
use crate::program::Program;
use crate::topology::Network;
use crate::topology::world::{Family, Node};
use crate::waits::SOON;
use crate::{mounts, witness};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "boot",
    shows: "without a controller a node serves the plan on its disk, as far as that can be trusted",
    run,
};

/// The node that loses its power.
const NODE: Node = Node::A;
/// What is not served must not be for so long.
const QUIET: Duration = Duration::from_secs(2);
/// One attempt. It must be short beside the grace, within which a Service is not served.
const BRIEF: Duration = Duration::from_secs(1);
/// The setting `disk.grace` of these clusters.
const GRACE: u32 = 15;

/// How often the node was started.
struct Boots(u32);

type Lab<'a> = harness::Lab<'a, Boots>;

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let mut lab = harness::Lab::new(stage, Network::Routed)?.with(Boots(0));
    lab.serve_pods()?;
    lab.add_files([CLUSTER[0]])?;
    lab.write(SETTINGS, &settings(600, GRACE))?;
    lab.write("first.yaml", &service(FIRST))?;
    lab.write("second.yaml", &service(SECOND))?;
    lab.start()?;
    lab.run_parts(
        checks,
        &[
            ("an agent that restarts", agent_restarts),
            ("a fresh plan", fresh_plan),
            ("an old plan", old_plan),
            ("a damaged plan", damaged_plan),
        ],
    )
}

const SETTINGS: &str = "settings.yaml";
/// The Service that the cluster needs to come up.
const FIRST: u8 = 1;
/// One that can wait.
const SECOND: u8 = 2;

/// How long a plan on disk is young, and how long a controller is waited for, in seconds.
fn settings(max_age: u32, grace: u32) -> String {
    proxy_config(&[&format!("disk: {{maxAge: {max_age}s, grace: {grace}s}}")])
}

fn service(number: u8) -> String {
    let mut extra = Extra::new(number);
    if number == FIRST {
        extra.annotations = "proxy.portolan.dev/boot-critical: \"true\"";
    }
    extra.manifest()
}

/// The agent ends, and somebody empties the kernel before it comes back.
fn agent_restarts(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("the agent restarts");
    lab.cluster.stop_agent(NODE)?;
    lab.cluster.kill_controller()?;
    lab.empty()?;
    lab.cluster.start_agent(NODE)?;
    checks.check(
        "an agent that restarts serves all of its plan without a controller",
        lab.until_served(&[FIRST, SECOND]),
    );
    // A plan that is older than the kernel: what it does not name stays as it is (S-183).
    let old = std::fs::read(lab.plan())?;
    lab.cluster.start_controller()?;
    lab.put_on(NODE, "third.yaml", &service(THIRD))?;
    lab.until_served(&[FIRST, SECOND, THIRD])?;
    lab.cluster.kill_controller()?;
    lab.cluster.stop_agent(NODE)?;
    std::fs::write(lab.plan(), old)?;
    let mark = lab.log_end(NODE)?;
    lab.cluster.start_agent(NODE)?;
    lab.until_logged(mark, "what is on disk of the plan is in force")?;
    checks.check(
        "what is in the kernel and not in the plan on disk goes on (S-183)",
        lab.served(&[FIRST, SECOND, THIRD]),
    );
    let before = lab.cluster.applied(NODE)?.len();
    std::fs::remove_file(lab.cluster.manifests().join("third.yaml"))?;
    lab.cluster.start_controller()?;
    lab.cluster.wait_applied(NODE, before)?;
    checks.check(
        "and goes once a controller says so",
        lab.until_refused(THIRD),
    );
    Ok(())
}

const THIRD: u8 = 3;

fn fresh_plan(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("a power failure, and a fresh plan");
    lab.save()?;
    lab.power_failure()?;
    checks.check("the node is empty", lab.is_empty());
    let mark = lab.log_end(NODE)?;
    lab.come_up()?;
    checks.check(
        "a fresh plan is served whole before any controller",
        lab.until_served(&[FIRST, SECOND]),
    );
    checks.check(
        "the log says that it is the one on disk",
        lab.until_logged(mark, "serving the plan on disk"),
    );
    let before = lab.cluster.applied(NODE)?.len();
    lab.cluster.start_controller()?;
    let operations = lab.cluster.wait_applied(NODE, before);
    checks.check(
        "a controller that comes back finds nothing to change",
        operations.and_then(|operations| wrote_nothing(&operations)),
    );
    Ok(())
}

fn old_plan(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("a power failure, and an old plan");
    lab.put_on(NODE, SETTINGS, &settings(1, GRACE))?;
    lab.save()?;
    lab.power_failure()?;
    // Older than the second for which it is trusted.
    std::thread::sleep(Duration::from_secs(3));
    lab.come_up()?;
    checks.check(
        "of an old plan boot-critical Services are served",
        lab.until_served(&[FIRST]),
    );
    checks.check("and no others", lab.stays_unserved(SECOND));
    let grace = lab.limit(Duration::from_secs(GRACE.into()));
    checks.check(
        "but all when no controller has come",
        lab.until_served_within(&[FIRST, SECOND], grace + SOON),
    );
    lab.cluster.start_controller()?;
    Ok(())
}

fn damaged_plan(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("a power failure, and a damaged plan");
    lab.save()?;
    lab.power_failure()?;
    let mut plan = std::fs::read(lab.plan())?;
    let middle = plan.len() / 2;
    *plan.get_mut(middle).context("the plan is empty")? ^= 1;
    std::fs::write(lab.plan(), plan)?;
    let mark = lab.log_end(NODE)?;
    lab.come_up()?;
    checks.check(
        "a damaged plan is told",
        lab.until_logged(mark, "it is damaged: its checksum is wrong"),
    );
    checks.check("and nothing of it served", lab.stays_unserved(FIRST));
    checks.check("nothing is written without a plan (S-183)", lab.is_empty());
    lab.cluster.start_controller()?;
    checks.check(
        "the next plan of a controller is served",
        lab.until_served(&[FIRST, SECOND]),
    );
    lab.save()?;
    // In order, so that the plan on disk is one of this boot.
    lab.cluster.stop_agent(NODE)?;
    lab.cluster.kill_controller()?;
    lab.empty()?;
    lab.cluster.start_agent(NODE)?;
    checks.check(
        "and takes the place of the damaged one on disk",
        lab.until_served(&[FIRST, SECOND]),
    );
    Ok(())
}

impl Lab<'_> {
    fn plan(&self) -> PathBuf {
        self.cluster.state_folder(NODE).join("plan")
    }

    fn until_logged(&self, end: usize, words: &str) -> Result<()> {
        self.wait_logged(NODE, end, &[words], SOON)
    }

    /// The plan as it is now is on disk: an agent that ends in order writes it.
    fn save(&mut self) -> Result<()> {
        self.cluster.stop_agent(NODE)?;
        ensure!(self.plan().exists(), "no plan on disk");
        self.start_agent(NODE).map(drop)
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
        self.node(NODE)?.inside(|| Program::Agent.run(&words))?;
        Ok(())
    }

    /// The agent starts in a kernel that says it was started anew.
    fn come_up(&mut self) -> Result<()> {
        self.state.0 += 1;
        let name = self.cluster.beside("boot");
        let boot = format!("00000000-0000-4000-8000-{:012}\n", self.state.0);
        std::fs::write(&name, boot).with_context(|| format!("write {}", name.display()))?;
        self.cluster
            .start_agent_after(NODE, &[], || mounts::rename_boot(&name))
    }

    fn is_empty(&self) -> Result<()> {
        let found = witness::virtual_servers(&self.node(NODE)?)?;
        ensure!(found.is_empty(), "there is {found:?}");
        Ok(())
    }

    fn until_served(&self, services: &[u8]) -> Result<()> {
        self.until_served_within(services, SOON)
    }

    fn until_served_within(&self, services: &[u8], limit: Duration) -> Result<()> {
        self.eventually("Services to be served", limit, || self.served(services))
    }

    fn until_refused(&self, service: u8) -> Result<()> {
        self.eventually("a Service to be gone", SOON, || self.is_unserved(service))
    }

    fn is_unserved(&self, service: u8) -> Result<()> {
        ensure!(self.served(&[service]).is_err(), "it is served");
        Ok(())
    }

    fn stays_unserved(&self, service: u8) -> Result<()> {
        let end = std::time::Instant::now() + QUIET;
        while std::time::Instant::now() < end {
            self.is_unserved(service)?;
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Whether every kind of client is answered, over both families.
    fn served(&self, services: &[u8]) -> Result<()> {
        for service in services {
            for family in Family::ALL {
                self.all_are_answered(NODE, extra::cluster_ip(*service, family)?, BRIEF)?;
            }
        }
        Ok(())
    }
}
