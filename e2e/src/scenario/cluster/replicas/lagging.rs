//! A controller that has not read as much as the others: agents that connect with a newer plan keep it, and get
//! nothing until the controller has caught up.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use portolan_plan::PlanHash;

use super::delay::Delay;
use super::{MOVED, Replicas, pod};
use crate::checks::Checks;
use crate::traffic::http;
use crate::waits::sleep_until;

/// The Services that have the pods.
const SERVICES: usize = 2;
/// How long agents have only the lagging controller after all connected to it, on hardware.
const ALONE: Duration = Duration::from_secs(2);
/// A pod is added in several steps, each of which changes the plan. After this time without a new
/// plan it is complete.
const STILL: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_secs(5);

/// Starts this controller, makes it lag behind, and ends the others.
pub(super) fn run(replicas: &mut Replicas<'_>, lagging: &str, checks: &mut Checks) -> Result<()> {
    let replica = replicas.named(lagging)?;
    let delay = Delay::before(&replica.kubeconfig)?;
    replica.start()?;
    replicas.wait_ready(lagging)?;
    let before = replicas.hashes()?;
    let mark = replicas.named(lagging)?.said().len();
    delay.hold(true);
    replicas.rig.plane.apply(&pod(8))?;
    replicas.wait_all_news(&before)?;
    // On a busy machine, two steps may be further apart than [`STILL`].
    replicas.wait_ready_pod("web-8")?;
    replicas.rig.wait_equal(MOVED)?;
    let (newest, streams) = (replicas.hashes()?, replicas.rig.agents()?.streams());
    for replica in &mut replicas.all {
        if replica.name != lagging
            && let Some(running) = replica.running.take()
        {
            running.kill()?;
        }
    }
    let console = replicas.rig.stage.console;
    console.line(&format!(
        "only controller {lagging} is left, and its cache is older than the agents' plans"
    ));
    let asked = replicas.wait_asked(lagging, mark, newest.len());
    checks.check("all of the agents connected to it", asked);
    sleep_until(Instant::now() + replicas.rig.stage.waits.limit(ALONE))?;
    checks.require(
        "agents with a newer plan than the lagging controller keep it",
        replicas.hashes()? == newest,
        "some agents got another plan",
    );
    replicas.rig.plane.apply(&pod(9))?;
    delay.hold(false);
    checks.check(
        "they follow it once it has caught up",
        replicas.rig.wait_equal(MOVED),
    );
    let agents = replicas.rig.agents()?;
    let (now, all) = (agents.streams(), agents.nodes().count() as u64);
    checks.require(
        "over new streams to it",
        now >= streams + all,
        &format!("{now} streams, {streams} before"),
    );
    let back: Vec<_> = agents.went_back().collect();
    checks.require(
        "no agent ever went back to an older plan",
        back.is_empty(),
        &format!("{back:?}"),
    );
    Ok(())
}

impl Replicas<'_> {
    pub(super) fn wait_ready(&mut self, name: &str) -> Result<()> {
        let waits = self.rig.stage.waits;
        let replica = self.named(name)?;
        waits.eventually("it to be ready", MOVED, || {
            let address = replica.pages().context("it has no pages")?;
            let answer = http::get(address, "/readyz", waits.limit(ANSWER))?;
            ensure!(answer.status == 200, "{answer:?}");
            Ok(())
        })
    }

    /// Waits until the slices of both Services have a pod, and it is ready.
    fn wait_ready_pod(&self, name: &str) -> Result<()> {
        let each = r#"{range .items[*]}{range .endpoints[*]}{.targetRef.name}={.conditions.ready}{"\n"}{end}{end}"#;
        let words = ["get", "endpointslices", "-o", &format!("jsonpath={each}")];
        let wanted = format!("{name}=true");
        self.eventually("a pod to be ready in all slices", MOVED, || {
            let found = self.rig.plane.kubectl(&words)?;
            let count = found.lines().filter(|line| *line == wanted).count();
            ensure!(count == SERVICES, "{count} slices have it: {found}");
            Ok(())
        })
    }

    /// Waits until agents of this number of nodes have connected to the lagging controller with
    /// newer plans.
    fn wait_asked(&mut self, lagging: &str, mark: usize, nodes: usize) -> Result<()> {
        let waits = self.rig.stage.waits;
        let replica = self.named(lagging)?;
        waits.eventually("agents to come to it", MOVED, || {
            let said = replica.said().split_off(mark);
            let asked = said
                .lines()
                .filter(|line| line.contains("the agent has a newer plan; listing again"));
            let node = |line: &str| Some(line.split_once("node=")?.1.split(' ').next()?.to_owned());
            let asked: BTreeSet<_> = asked.filter_map(node).collect();
            ensure!(asked.len() == nodes, "only {asked:?}");
            Ok(())
        })
    }

    /// Waits until every agent has another plan than before, and none got a newer one for [`STILL`].
    fn wait_all_news(&self, before: &[Option<PlanHash>]) -> Result<()> {
        let mut last = self.hashes()?;
        let mut since = Instant::now();
        let still = self.rig.stage.waits.limit(STILL);
        self.eventually("agents of the others to follow", MOVED, || {
            let now = self.hashes()?;
            if now != last {
                since = Instant::now();
                last = now;
            }
            let all = last.iter().zip(before).all(|(now, before)| now != before);
            ensure!(all, "some agents have the previous plan");
            ensure!(since.elapsed() >= still, "agents still get new plans");
            Ok(())
        })
    }
}
