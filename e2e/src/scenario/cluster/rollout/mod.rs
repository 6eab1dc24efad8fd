//! Settings in waves on a real API server: canary, soak, zone by zone; a failed gate; pause and undo; and a leader
//! that is killed in the middle of a wave.

mod events;
mod plugin;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::replicas::Replicas;
use super::rig::Rig;
use crate::checks::Checks;
use crate::control_plane::Options;
use crate::harness::run_parts;
use crate::light_agents::FAILURE;
use crate::scenario::Scenario;
use crate::stage::Stage;

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "waves",
    shows: "settings reach nodes in waves; a failed gate, pause, undo, and a leader that is killed in the middle",
    run,
};

const NODES: u8 = 12;
/// Until a rollout step is done, on hardware: the controller checks every 2 s and writes a status
/// every 5 s.
const STEP: Duration = Duration::from_secs(30);
/// A soak time that ends while the scenario waits, and one that does not.
const SHORT: &str = "1s";
const LONG: &str = "10m";
/// Until another controller leads (the lease expires after 15 s) and a wave is complete.
const TAKEN: Duration = Duration::from_secs(60);

/// State of a rollout, and the scheduler of each node.
#[derive(Debug)]
struct Seen {
    status: Value,
    nodes: Vec<(String, String)>,
}

impl Seen {
    fn text(&self, field: &str) -> &str {
        self.status[field].as_str().unwrap_or_default()
    }

    fn with(&self, scheduler: &str) -> BTreeSet<&str> {
        let with = self.nodes.iter().filter(|(_, own)| own == scheduler);
        with.map(|(node, _)| node.as_str()).collect()
    }
}

/// Reads the status first: nodes may be ahead of it, but never behind it for long.
fn look(rig: &Rig<'_>) -> Result<Seen> {
    let words = ["get", "proxyconfig", "-o", "json"];
    let configs: Value = serde_json::from_str(&rig.plane.kubectl(&words)?)?;
    // The leader creates it; until then there is none.
    let config = &configs["items"][0];
    let agents = rig.agents()?;
    let nodes = agents
        .nodes()
        .filter_map(|node| Some((node.to_owned(), agents.scheduler(node)?)));
    Ok(Seen {
        status: config["status"]["rollout"].clone(),
        nodes: nodes.collect(),
    })
}

/// Waits until `is` holds for the rollout.
fn until(
    replicas: &Replicas<'_>,
    what: &str,
    limit: Duration,
    is: impl Fn(&Seen) -> bool,
) -> Result<Seen> {
    replicas.eventually(what, limit, || {
        let seen = look(&replicas.rig)?;
        ensure!(is(&seen), "{seen:?}");
        Ok(seen)
    })
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let rig = Rig::start(stage, Options::default(), NODES, 1)?;
    // Nodes alternate between two zones; every third one is in another.
    let third = "label nodes node-3 node-6 node-9 node-12";
    let zone = "topology.kubernetes.io/zone=zone-3 --overwrite";
    rig.plane.kubectl_line(&format!("{third} {zone}"))?;
    let mut replicas = Replicas::start(rig, &["a", "b"])?;
    replicas.connect(NODES)?;
    replicas.rig.wait_first_plans()?;
    run_parts(
        &mut replicas,
        checks,
        &[
            ("without waves", begin),
            ("waves and a gate", waves_and_gate),
            ("the plugin", plugin::run),
            ("events", events::of_service),
            ("rights", rights),
        ],
    )
}

fn waves_and_gate(replicas: &mut Replicas<'_>, checks: &mut Checks) -> Result<()> {
    let canary = waves(replicas, checks)?;
    gate(replicas, checks, &canary)
}

fn rights(replicas: &mut Replicas<'_>, checks: &mut Checks) -> Result<()> {
    let nothing = replicas.rig.audit()?.nothing_forbidden();
    checks.check("no controller needs more permissions than it has", nothing);
    Ok(())
}

/// Without waves, a change reaches all nodes at once. Then waves are configured.
fn begin(replicas: &mut Replicas<'_>, checks: &mut Checks) -> Result<()> {
    until(replicas, "the first revision", STEP, |seen| {
        seen.text("currentRevision") == "default-1"
    })?;
    replicas
        .rig
        .configure(&json!({"settings": {"scheduler": "wrr"}}))?;
    let all = until(replicas, "all nodes to have a change", STEP, |seen| {
        seen.with("wrr").len() == usize::from(NODES)
    });
    checks.check(
        "without waves a change reaches all nodes at once",
        all.map(drop),
    );
    until(replicas, "it to be recorded", STEP, |seen| {
        seen.text("currentRevision") == "default-2"
    })?;
    replicas
        .rig
        .configure(&json!({"rollout": {"soak": LONG, "maxParallel": 2}}))
}

/// Lets the next wave begin, and waits until all its nodes have the change. Then the rollout waits for a long soak
/// time, so what is checked cannot change meanwhile. A slow machine may be one wave further.
fn next_wave(replicas: &Replicas<'_>, now: &str) -> Result<Seen> {
    let soak = |time| replicas.rig.configure(&json!({"rollout": {"soak": time}}));
    soak(SHORT)?;
    let what = format!("the wave after {now}");
    until(replicas, &what, STEP, |seen| seen.text("wave") != now)?;
    soak(LONG)?;
    until(replicas, &format!("{what} to be watched"), STEP, |seen| {
        seen.text("wave") != now && seen.text("phase") == "Soaking"
    })
}

/// Checks that exactly the canary and the nodes of all zones up to that of the wave have this scheduler.
fn reached(checks: &mut Checks, what: &str, seen: &Seen, scheduler: &str, canary: &str) {
    let wave = seen.text("wave").trim_start_matches("zone ");
    let nodes = seen.nodes.iter().map(|(node, _)| node.as_str());
    let expected: BTreeSet<&str> = nodes
        .filter(|node| *node == canary || zone_of(node) <= wave)
        .collect();
    let right = seen.with(scheduler) == expected && wave < "zone-3";
    checks.require(what, right, &format!("{expected:?} of {seen:?}"));
}

/// A change passes all waves.
fn waves(replicas: &mut Replicas<'_>, checks: &mut Checks) -> Result<String> {
    replicas
        .rig
        .configure(&json!({"settings": {"scheduler": "lc"}}))?;
    let seen = until(replicas, "the canary to be watched", STEP, |seen| {
        seen.text("wave") == "canary" && seen.text("phase") == "Soaking"
    })?;
    let with = seen.with("lc");
    checks.require(
        "only the canary has it",
        with.len() == 1,
        &format!("{seen:?}"),
    );
    let canary = with.first().context("no node has it")?.to_string();
    let seen = next_wave(replicas, "canary")?;
    let what = "then the nodes of the first zone have it, and no others";
    reached(checks, what, &seen, "lc", &canary);
    killed(replicas, checks, &canary)?;
    let end = until(replicas, "the end", STEP, |seen| {
        seen.text("phase") == "Complete"
    })?;
    let all = end.with("lc").len() == usize::from(NODES);
    checks.require("in the end all nodes have it", all, &format!("{end:?}"));
    ensure!(
        end.text("currentRevision") == end.text("targetRevision"),
        "{end:?}"
    );
    Ok(canary)
}

/// The leader is killed after the first zone.
fn killed(replicas: &mut Replicas<'_>, checks: &mut Checks, canary: &str) -> Result<()> {
    let leader = replicas.holder()?;
    let console = replicas.rig.stage.console;
    console.line(&format!("controller {leader} leads and is killed"));
    let running = replicas.named(&leader)?.running.take();
    running.context("it does not run")?.kill()?;
    let left = look(&replicas.rig)?;
    let what = "zones that the rollout has not reached do not have it";
    reached(checks, what, &left, "lc", canary);
    let soak = json!({"rollout": {"soak": SHORT}});
    replicas.rig.configure(&soak)?;
    let touched = left.status["touchedNodes"].as_u64();
    let seen = until(replicas, "another controller to continue", TAKEN, |seen| {
        seen.text("wave") != left.text("wave")
    })?;
    checks.require(
        "another controller continues the rollout",
        seen.status["touchedNodes"].as_u64() >= touched && touched.is_some(),
        &format!("{seen:?} after {left:?}"),
    );
    Ok(())
}

/// Nodes of the second zone fail to apply it.
fn gate(replicas: &Replicas<'_>, checks: &mut Checks, canary: &str) -> Result<()> {
    let agents = replicas.rig.agents()?;
    let second = agents
        .nodes()
        .filter(|node| zone_of(node) == "zone-2" && *node != canary);
    agents.dislike("sed", second);
    replicas
        .rig
        .configure(&json!({"settings": {"scheduler": "sed"}}))?;
    let back = until(replicas, "the change to be rolled back", STEP, |seen| {
        seen.text("phase") == "RolledBack" && seen.with("lc").len() == usize::from(NODES)
    })?;
    let failed: Vec<_> = agents.disliked().collect();
    checks.require(
        "no more nodes than allowed at once got the failing change",
        (1..=2).contains(&failed.len()),
        &format!("{failed:?}"),
    );
    let reason = back.text("reason");
    let says = reason.contains("zone zone-2") && reason.contains(FAILURE);
    checks.require(
        "the reason names the wave and the error of a node",
        says,
        reason,
    );
    let failed: Vec<String> = failed.iter().map(ToString::to_string).collect();
    events::after_failure(replicas, checks, &failed);
    Ok(())
}

/// The zone of a node in this scenario.
fn zone_of(node: &str) -> &'static str {
    let number: u8 = node
        .strip_prefix("node-")
        .and_then(|number| number.parse().ok())
        .unwrap_or_default();
    match (number % 3, number % 2) {
        (0, _) => "zone-3",
        (_, 1) => "zone-1",
        _ => "zone-2",
    }
}
