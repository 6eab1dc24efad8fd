//! A new agent image reaches all nodes in waves: a canary, then zone by zone. Meanwhile the leader is killed, a pod
//! is deleted on a node that the rollout has not reached, the image fails in one zone, and the rollout is paused and
//! undone. Then its state is forged.

mod failure;
mod fleet;
mod forged;
mod lab;
mod reads;
mod refused;
mod replacement;
mod statuses;

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::checks::Checks;
use crate::harness::run_parts;
use crate::scenario::Scenario;
use crate::stage::Stage;
use lab::{Lab, Seen};
use statuses::{reporters, settled, versions};

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "agents",
    shows: "a new agent image reaches many kwok nodes in waves, and is rolled back where it fails",
    run,
};

/// Label that assigns a node or pod to one of the two DaemonSets.
const TRACK: &str = "proxy.portolan.dev/track";
/// Until all agents run and have their plans, on hardware.
const FIRST: Duration = Duration::from_secs(180);
/// Until a rollout step is done: the controller checks every 2 s, statuses are written every 5 s,
/// and agents restart.
const STEP: Duration = Duration::from_secs(120);
/// Until a wave is complete, including a change of leader.
const WAVE: Duration = Duration::from_secs(240);
/// How long nothing may happen.
const QUIET: Duration = Duration::from_secs(6);
const FIRST_TAG: &str = "0.1.0";

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let mut lab = Lab::start(stage)?;
    run_parts(
        &mut lab,
        checks,
        &[
            ("all nodes", begin),
            ("waves and an image that fails", waves_and_failure),
            ("a scheduler", settings_alone),
            ("by hand", by_hand),
            ("a forged state", forged::run),
            ("pods that the cluster refuses", refused::run),
            ("rights", rights),
        ],
    )
}

fn waves_and_failure(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let canary = replacement::waves(lab, checks)?;
    replacement::joins(lab, checks)?;
    failure::run(lab, checks, &canary)
}

fn rights(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let nothing = lab.release.audit()?.nothing_forbidden();
    checks.check(
        "the controllers need no more permissions than the chart grants",
        nothing,
    );
    Ok(())
}

/// Agents on all nodes, without a label on any.
fn begin(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let nodes = lab.nodes();
    let planned = |_: &Seen| lab.fleet.planned() == nodes;
    let seen = lab.until("all agents to have plans", FIRST, planned)?;
    let one = seen.pods.iter().all(|pod| pod.track == "blue");
    let labelled = lab.labelled()?;
    checks.require(
        "one DaemonSet runs agents on all nodes, and no node is labelled",
        one && labelled.is_empty() && seen.with(FIRST_TAG).len() == nodes,
        &format!("{labelled:?} {seen:?}"),
    );
    settled(lab)?;
    reads::at_rest(lab, checks);
    reporters(lab, checks, "before any change");
    versions(lab, checks, "before any change")
}

/// A new scheduler passes the same waves, and no agent is replaced for it.
fn settings_alone(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let nodes = lab.nodes() + 1;
    let before = lab.fleet.starts();
    let scheduler = ["--set", "config.spec.settings.scheduler=mh"];
    lab.change_canary("2", &scheduler)?;
    let with = lab.fleet.with_scheduler("mh").len();
    checks.require(
        "only the canary tries a new scheduler",
        with == 1,
        &format!("{with} have it"),
    );
    let seen = lab.next_wave("canary", "2", &scheduler)?;
    let with = lab.fleet.with_scheduler("mh").len();
    ensure!((2..nodes).contains(&with), "{with} have it: {seen:?}");
    lab.change_with("2", &scheduler)?;
    lab.until("all nodes to have the scheduler", WAVE, |seen| {
        seen.text("phase") == "Complete" && lab.fleet.with_scheduler("mh").len() == nodes
    })?;
    let after = lab.fleet.starts();
    checks.require(
        "all nodes have it in the end, and no agent was replaced for it",
        before == after,
        &format!("{before:?} {after:?}"),
    );
    settled(lab)
}

/// A rollout of agents is paused, resumed, and undone in the middle.
fn by_hand(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.change("4")?;
    lab.until("the first zone", WAVE, |seen| {
        seen.text("wave") == "zone zone-1" && seen.with("4").len() > 1
    })?;
    lab.rollout("pause")?;
    let seen = lab.until("the pause", STEP, |seen| {
        let touched = seen.status["touchedNodes"].as_u64();
        let with = u64::try_from(seen.with("4").len()).ok();
        seen.text("phase") == "Paused" && touched == with
    })?;
    let before = seen.with("4").len();
    std::thread::sleep(QUIET);
    let after = lab.look()?;
    checks.require(
        "while it is paused, no other agent is replaced",
        after.with("4").len() == before && after.text("phase") == "Paused",
        &format!("{before} nodes had it: {after:?}"),
    );
    versions(lab, checks, "in the middle")?;
    lab.rollout("resume")?;
    let seen = lab.until("it to go on", STEP, |seen| seen.with("4").len() > before)?;
    ensure!(seen.text("phase") != "Paused", "{seen:?}");
    let said = lab.rollout("undo")?;
    let seen = lab.until("all nodes to have the previous image", WAVE, |seen| {
        seen.text("phase") == "Complete" && seen.with("2").len() == lab.nodes() + 1
    })?;
    checks.require(
        "an undo in the middle restores the previous image on the nodes that had the new one",
        seen.text("reason").contains("was rolled back"),
        &format!("{said} {seen:?}"),
    );
    versions(lab, checks, "after the undo")
}

/// The zone of a node, as the lab gives them.
fn zone_of(node: &str) -> &'static str {
    let number = node
        .strip_prefix("node-")
        .and_then(|text| text.parse().ok());
    match number.unwrap_or(0_u8) % 3 {
        0 => "zone-1",
        1 => "zone-2",
        _ => "zone-3",
    }
}
