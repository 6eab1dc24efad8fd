//! A new agent image reaches all nodes in waves: a canary, then zone by zone. Meanwhile the leader is killed, a pod
//! is deleted on a node that the rollout has not reached, the image fails in one zone, and the rollout is paused and
//! undone.

mod fleet;
mod lab;
mod refused;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::release::NAMESPACE;
use crate::harness::{Environment as _, run_parts};
use crate::light_agents::FAILURE;
use crate::scenario::{Checks, Scenario, Stage};
use lab::{AWAY, Lab, Seen};

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
/// How long reads of controllers at rest are counted.
const REST: Duration = Duration::from_secs(20);
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
            ("pods that the cluster refuses", refused::run),
            ("rights", rights),
        ],
    )
}

fn waves_and_failure(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let canary = waves(lab, checks)?;
    joins(lab, checks)?;
    fails(lab, checks, &canary)
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
    at_rest(lab, checks);
    reporters(lab, checks, "before any change");
    versions(lab, checks, "before any change")
}

/// The controllers read from watches. They read the ProxyConfig every 30 s for the write budget, and compare ProxyPlans
/// and slices with the store every 10 minutes.
fn at_rest(lab: &Lab<'_>, checks: &mut Checks) {
    let expected = [
        "get proxyconfigs",
        "list proxyplans",
        "list proxyplanslices",
    ];
    let waits = lab.stage.waits;
    // The controllers may still write statuses and events of the installation.
    let rest = waits.eventually("the controllers to read from watches only", STEP, || {
        let before = lab.release.audit()?.reads();
        std::thread::sleep(REST);
        let reads = since(&before, &lab.release.audit()?.reads());
        let few = |(name, count): (&String, &usize)| expected.contains(&&**name) && *count <= 2;
        ensure!(reads.iter().all(few), "{reads:?} in {REST:?}");
        Ok(())
    });
    checks.check("at rest the controllers read from watches", rest);
}

/// Later reads, by verb and resource.
fn since(
    before: &BTreeMap<String, usize>,
    after: &BTreeMap<String, usize>,
) -> BTreeMap<String, usize> {
    let new = |(name, count): (&String, &usize)| {
        let count = count.saturating_sub(before.get(name).copied().unwrap_or_default());
        (count > 0).then(|| (name.clone(), count))
    };
    after.iter().filter_map(new).collect()
}

/// Each status names the pod that reported it, because a rollout counts only reports of a node's new agent.
fn reporters(lab: &Lab<'_>, checks: &mut Checks, when: &str) {
    let words = ["get", "proxyplans", "-o", REPORTERS];
    let same = |seen: &Seen| {
        let printed = lab.release.plane.kubectl(&words);
        let pods = seen.pods.iter().filter(|pod| pod.ready);
        let pods: BTreeSet<_> = pods
            .map(|pod| format!("{} {}", pod.node, pod.name))
            .collect();
        printed.is_ok_and(|text| text.lines().map(str::to_owned).collect::<BTreeSet<_>>() == pods)
    };
    let named = lab.until("statuses to name the pods that reported them", STEP, same);
    let what = format!("{when} each status names the pod that reported it");
    checks.check(&what, named.map(drop));
}

const REPORTERS: &str =
    r#"jsonpath={range .items[*]}{.metadata.name}{" "}{.status.agentPod}{"\n"}{end}"#;

/// The version of each agent is the tag of its image, also while nodes differ, so `top` shows which nodes a rollout
/// has reached.
fn versions(lab: &Lab<'_>, checks: &mut Checks, when: &str) -> Result<()> {
    let same = |seen: &Seen| lab.versions().is_ok_and(|versions| versions == seen.tags());
    let found = lab.until("plans to have the versions of agents", STEP, same);
    let tags: BTreeSet<_> = lab.look()?.tags().into_values().collect();
    let what = format!(
        "{when} `kubectl proxyplan top` lists for each node the version of its image: \
            {tags:?}"
    );
    checks.check(&what, found.map(drop));
    Ok(())
}

/// Waits until the statuses of all nodes report the current revision as applied: a rollout starts only with healthy
/// nodes.
fn settled(lab: &Lab<'_>) -> Result<()> {
    let words = ["get", "proxyplans", "-o", APPLIED];
    let waits = lab.stage.waits;
    let sound = waits.eventually("all nodes to be healthy", FIRST, || {
        let found = lab.release.plane.kubectl(&words)?;
        let count = found.lines().filter(|line| *line == "True").count();
        ensure!(count >= lab.nodes(), "{count} are");
        Ok(())
    });
    sound.map_err(|error| lab.with_logs(error))
}

const APPLIED: &str =
    r#"jsonpath={range .items[*]}{.status.conditions[?(@.type=="Applied")].status}{"\n"}{end}"#;

/// A new image passes all waves.
fn waves(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<String> {
    let before = lab.release.audit()?.reads();
    lab.fleet.begin_count(lab.nodes());
    lab.change("2")?;
    let seen = lab.until("the canary to be watched", STEP, |seen| {
        seen.text("wave") == "canary" && seen.text("phase") == "Soaking"
    })?;
    let with = seen.with("2");
    checks.require(
        "only the canary, one node, has the new image",
        with.len() == 1 && seen.with(FIRST_TAG).len() == lab.nodes() - 1,
        &format!("{seen:?}"),
    );
    let canary = (*with.first().context("no node has it")?).to_owned();
    let seen = lab.until("the first zone", STEP, |seen| {
        seen.text("wave") == "zone zone-1" && seen.with("2").len() > 1
    })?;
    let with = seen.with("2");
    let inside = |node: &&str| zone_of(node) == "zone-1" || **node == *canary;
    checks.require(
        "then nodes of the first zone have it",
        with.iter().all(inside),
        &format!("{seen:?}"),
    );
    let returned = in_the_middle(lab, checks, &canary)?;
    let seen = lab.until("the end", WAVE, |seen| seen.text("phase") == "Complete")?;
    checks.require(
        "in the end all nodes have it",
        seen.with("2").len() == lab.nodes(),
        &format!("{seen:?}"),
    );
    let starts = lab.fleet.starts();
    let once = |(node, starts): (&String, &u32)| *starts == 2 + u32::from(*node == returned);
    checks.require(
        "and each agent was replaced once",
        starts.iter().all(once),
        &format!("{starts:?}, {returned} was deleted"),
    );
    let most = lab.fleet.most_missing();
    let what =
        format!("at most {AWAY} agents and the deleted one were missing at once (seen: {most})");
    checks.require(&what, most <= AWAY + 1, &most.to_string());
    let reads = since(&before, &lab.release.audit()?.reads());
    let console = &lab.stage.console;
    console.line(&format!(
        "reads of all controllers during the change: {reads:?}"
    ));
    let lists = reads.get("list pods").copied().unwrap_or_default();
    // A leader lists them before each DaemonSet gets another template, and at the start of its watches.
    checks.require(
        "pods are watched during a change of agents",
        lists <= 16,
        &format!("{reads:?}"),
    );
    settled(lab)?;
    reporters(lab, checks, "after all agents were replaced");
    Ok(canary)
}

/// In the second zone the leader is killed, and a pod is deleted on a node that the rollout has not
/// reached.
fn in_the_middle(lab: &mut Lab<'_>, checks: &mut Checks, canary: &str) -> Result<String> {
    let seen = lab.until("the second zone", WAVE, |seen| {
        seen.text("wave") == "zone zone-2"
    })?;
    lab.kill_leader()?;
    let mut third = seen
        .pods
        .iter()
        .filter(|pod| zone_of(&pod.node) == "zone-3" && pod.node != canary && pod.ready);
    let pod = third.next().context("no ready pod is in zone-3")?.clone();
    let words = ["delete", "pod", &pod.name, "-n", NAMESPACE, "--wait=false"];
    lab.release.plane.kubectl(&words)?;
    let seen = lab.until("it to be created again", STEP, |seen| {
        seen.pod(&pod.node).is_some_and(|new| new.name != pod.name)
    })?;
    let new = seen.pod(&pod.node).context("it is gone again")?;
    checks.require(
        "a pod deleted on a node that the rollout has not reached returns with the old image",
        new.tag == FIRST_TAG,
        &format!("{new:?}"),
    );
    let on = lab.until("another leader to go on", WAVE, |seen| {
        seen.text("wave") == "zone zone-3"
    });
    checks.check("another controller continues the rollout", on.map(drop));
    Ok(pod.node)
}

/// A node that joins gets the current image.
fn joins(lab: &Lab<'_>, checks: &mut Checks) -> Result<()> {
    let nodes = lab.nodes() + 1;
    let node = lab.join(lab.size + 1)?;
    // A rollout is reported complete a moment before the DaemonSet for joining nodes has the new image.
    let new = lab.until("a node that joins to have the new image", STEP, |seen| {
        seen.pod(&node).is_some_and(|pod| pod.tag == "2")
    });
    checks.check(
        "a node that joins gets the new image automatically",
        new.map(drop),
    );
    let belongs = |_: &Seen| lab.labelled().is_ok_and(|labelled| labelled.len() == nodes);
    let same = lab.until("it to have the label of all nodes", STEP, belongs);
    checks.check(
        "and has the label of all nodes, so the next change finds the other DaemonSet empty",
        same.map(drop),
    );
    let planned = |_: &Seen| lab.fleet.planned() == nodes;
    lab.until("it to have a plan", STEP, planned)?;
    settled(lab)
}

/// An image that fails on the nodes of one zone is rolled back.
fn fails(lab: &Lab<'_>, checks: &mut Checks, canary: &str) -> Result<()> {
    // A zone with another one after it.
    let zone = match zone_of(canary) {
        "zone-2" => "zone-1",
        _ => "zone-2",
    };
    let all = (1..=lab.size).map(|number| format!("node-{number}"));
    let there: BTreeSet<_> = all.filter(|node| zone_of(node) == zone).collect();
    lab.fleet.break_on("3", there.iter().cloned());
    let before = lab.fleet.starts();
    lab.fleet.begin_count(lab.nodes() + 1);
    lab.change("3")?;
    let seen = lab.until("the change to be rolled back", WAVE, |seen| {
        seen.text("phase") == "RolledBack"
    })?;
    let reason = seen.text("reason");
    checks.require(
        "a failing image is rolled back, and the reason names the wave and the error of a node",
        reason.contains(&format!("zone {zone}")) && reason.contains(FAILURE),
        reason,
    );
    let seen = lab.until("all nodes to have the previous image", WAVE, |seen| {
        seen.with("2").len() == lab.nodes() + 1
    })?;
    checks.require(
        "all nodes have the previous image again",
        seen.with("3").is_empty(),
        &format!("{seen:?}"),
    );
    let after = lab.fleet.starts();
    let changed = |node: &&String| after.get(*node) != before.get(*node);
    let changed: BTreeSet<_> = before.keys().filter(changed).collect();
    let failed = there.iter().filter(|node| changed.contains(node)).count();
    let beyond = changed
        .iter()
        .filter(|node| zone_of(node) > zone && ***node != *canary);
    checks.require(
        &format!(
            "no node in later zones was restarted, and no more nodes of the zone than allowed at \
             once ({failed})"
        ),
        beyond.count() == 0 && (1..=AWAY).contains(&failed),
        &format!("{changed:?}"),
    );
    let most = lab.fleet.most_missing();
    let what = format!(
        "at most {AWAY} agents were missing at once, also during the rollback \
        (seen: {most})"
    );
    checks.require(&what, most <= AWAY, &most.to_string());
    let planned = |_: &Seen| lab.fleet.planned() == lab.nodes() + 1;
    lab.until("all agents to have plans again", STEP, planned)?;
    settled(lab)
}

/// A new scheduler passes the same waves, and no agent is replaced for it.
fn settings_alone(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let nodes = lab.nodes() + 1;
    let before = lab.fleet.starts();
    lab.change_with("2", &["--set", "config.spec.settings.scheduler=mh"])?;
    let mut most = 0;
    for (wave, phase) in [
        ("canary", "Soaking"),
        ("zone zone-1", ""),
        ("zone zone-2", ""),
    ] {
        lab.until(&format!("wave {wave} of a scheduler"), WAVE, |seen| {
            seen.text("wave") == wave && (phase.is_empty() || seen.text("phase") == phase)
        })?;
        let with = lab.fleet.with_scheduler("mh").len();
        ensure!(
            with >= most,
            "{with} nodes have it in {wave}, {most} had it before"
        );
        if wave == "canary" {
            checks.require(
                "only the canary tries a new scheduler",
                with == 1,
                &format!("{with} have it"),
            );
        }
        most = with;
    }
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
