//! A node that starts while no controller is reachable: after a restart of its agent, and after a power failure with
//! a fresh, old or damaged plan on its disk.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::extra::{self, Extra};
use super::{Checks, Scenario, Stage};
use crate::files::CLUSTER;
use crate::harness::{self, proxy_config, wrote_nothing};
use crate::program::Program;
use crate::topology::Network;
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::waits::SOON;
use crate::{mounts, witness};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "boot",
    shows: "without a controller, a node serves the plan on its disk if that is fresh and intact",
    run,
};

/// The node that loses its power.
const NODE: Node = Node::A;
/// How long a Service has to stay unserved.
const QUIET: Duration = Duration::from_secs(2);
/// Deadline of one attempt; much shorter than the grace period, during which the Service is not
/// served.
const BRIEF: Duration = Duration::from_secs(1);
/// Deadline of one attempt that is repeated: without an answer, TCP tries again only after 1 s.
const ATTEMPT: Duration = Duration::from_millis(50);
/// The setting `disk.grace` of these clusters.
const GRACE: u32 = 15;

/// Number of boots of the node.
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
            ("a cold start among many Services", among_many),
        ],
    )
}

const SETTINGS: &str = "settings.yaml";
/// The boot-critical Service.
const FIRST: u8 = 1;
/// A Service that can wait.
const SECOND: u8 = 2;

/// Maximum age of a plan on disk, and how long to wait for a controller, in seconds.
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

/// The agent ends, and the kernel is emptied before it restarts.
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
    // A plan older than the kernel state: Services that it does not contain stay as they are
    // (S-183).
    let old = std::fs::read(lab.plan())?;
    lab.cluster.start_controller()?;
    lab.put_on(NODE, "third.yaml", &service(THIRD))?;
    lab.until_served(&[FIRST, SECOND, THIRD])?;
    lab.cluster.kill_controller()?;
    lab.cluster.stop_agent(NODE)?;
    std::fs::write(lab.plan(), old)?;
    let mark = lab.log_end(NODE)?;
    lab.cluster.start_agent(NODE)?;
    lab.until_logged(mark, "the saved plan is in force")?;
    checks.check(
        "kernel state that is not in the plan on disk is kept (S-183)",
        lab.served(&[FIRST, SECOND, THIRD]),
    );
    let before = lab.cluster.applied(NODE)?.len();
    std::fs::remove_file(lab.cluster.manifests().join("third.yaml"))?;
    lab.cluster.start_controller()?;
    lab.cluster.wait_applied(NODE, before)?;
    checks.check(
        "and is removed once a controller sends a plan without it",
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
        "a fresh plan is served completely before a controller is reachable",
        lab.until_served(&[FIRST, SECOND]),
    );
    checks.check(
        "the log says that it is the plan on disk",
        lab.until_logged(mark, "serving the saved plan"),
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
    // Older than the maximum age of one second.
    std::thread::sleep(Duration::from_secs(3));
    lab.come_up()?;
    checks.check(
        "an old plan serves boot-critical Services",
        lab.until_served(&[FIRST]),
    );
    checks.check("and no others", lab.stays_unserved(SECOND));
    let grace = lab.limit(Duration::from_secs(GRACE.into()));
    checks.check(
        "but all of them if no controller is reachable in time",
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
        "a damaged plan is logged",
        lab.until_logged(mark, "it is damaged: its checksum is wrong"),
    );
    checks.check("and none of it is served", lab.stays_unserved(FIRST));
    checks.check("nothing is written without a plan (S-183)", lab.is_empty());
    lab.cluster.start_controller()?;
    checks.check(
        "the next plan of a controller is served",
        lab.until_served(&[FIRST, SECOND]),
    );
    lab.save()?;
    // A clean stop saves the plan of this boot.
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

/// Other Services of the cold start. All pods serve each.
const OTHERS: u16 = 2_000;
/// If all Services were written together, the next attempt or the one after it would be answered.
const ATTEMPTS_BEFORE_OTHERS: u32 = 3;

/// S-249: pods do not wait for the boot-critical Service until all others are in.
fn among_many(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.heading("a cold start among many Services");
    let pod = Resident::Pod(NODE.pod(1));
    let first = extra::cluster_ip(FIRST, Family::IPv4)?;
    let other = SocketAddr::new(other(1).into(), 80);
    lab.write("many.yaml", &many()?)?;
    lab.cluster.start_controller()?;
    // The agent may wait for some seconds before it connects again.
    lab.eventually("the others to be served", 4 * SOON, || {
        lab.answered_within(pod, other, ATTEMPT)
    })?;
    lab.cluster.stop_agent(NODE)?;
    lab.empty()?;
    let began = Instant::now();
    lab.cluster.start_agent(NODE)?;
    let mut before = 0;
    lab.eventually("the boot-critical Service", SOON, || {
        before += u32::from(lab.answered_within(pod, other, ATTEMPT).is_ok());
        lab.answered_within(pod, first, ATTEMPT)
    })?;
    let answered = began.elapsed();
    let mut after = 0;
    let of_others = lab.eventually("another Service", SOON, || {
        after += 1;
        lab.answered_within(pod, other, ATTEMPT)
    });
    let complete = began.elapsed();
    checks.check("then the others are served, too", of_others.map(drop));
    lab.line(&format!(
        "first answer to a pod after {answered:.1?}, of another Service after {complete:.1?}, in attempt {after}"
    ));
    checks.require(
        "a pod is answered by the boot-critical Service before the others are in (S-249)",
        before == 0 && after > ATTEMPTS_BEFORE_OTHERS,
        &format!("another Service answered {before} times before it, and then in attempt {after}"),
    );
    Ok(())
}

/// The cluster IP of one of the other Services.
fn other(number: u16) -> Ipv4Addr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(10, 97, high, low)
}

fn many() -> Result<String> {
    let mut text = String::new();
    for number in 1..=OTHERS {
        let address = other(number);
        writeln!(
            text,
            "---\n{{apiVersion: v1, kind: Service, metadata: {{name: many-{number}, namespace: shop}}, spec: {{clusterIP: {address}, clusterIPs: [{address}], ipFamilies: [IPv4], ports: [{{port: 80, targetPort: 8080}}]}}}}\n---\n{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: many-{number}, namespace: shop, labels: {{kubernetes.io/service-name: many-{number}}}}}, addressType: IPv4, ports: [{{name: \"\", port: 8080}}], endpoints: ["
        )?;
        for pod in Pod::all() {
            writeln!(text, "{{addresses: [{}]}},", pod.address(Family::IPv4))?;
        }
        writeln!(text, "]}}")?;
    }
    Ok(text)
}

impl Lab<'_> {
    fn plan(&self) -> PathBuf {
        self.cluster.state_folder(NODE).join("plan")
    }

    fn until_logged(&self, end: usize, words: &str) -> Result<()> {
        self.wait_logged(NODE, end, &[words], SOON)
    }

    /// Saves the current plan to disk: an agent writes it at a clean stop.
    fn save(&mut self) -> Result<()> {
        self.cluster.stop_agent(NODE)?;
        ensure!(self.plan().exists(), "no plan on disk");
        self.start_agent(NODE).map(drop)
    }

    /// A power failure: everything on the node ends at once, its kernel is empty, and no controller
    /// runs.
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

    /// Starts the agent with a new boot ID.
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
        let end = Instant::now() + QUIET;
        while Instant::now() < end {
            self.is_unserved(service)?;
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Checks that every kind of client is answered over both families.
    fn served(&self, services: &[u8]) -> Result<()> {
        for service in services {
            for family in Family::ALL {
                self.all_are_answered(NODE, extra::cluster_ip(*service, family)?, BRIEF)?;
            }
        }
        Ok(())
    }
}
