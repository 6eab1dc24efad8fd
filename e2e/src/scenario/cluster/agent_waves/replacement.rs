//! A new image reaches all nodes, also those that join. Meanwhile the leader is killed, and a pod is deleted.

use anyhow::{Context, Result};

use super::super::audit::since;
use super::super::release::NAMESPACE;
use super::lab::{Lab, MAX_UNAVAILABLE, Seen};
use super::statuses::{reporters, settled};
use super::{FIRST_TAG, STEP, WAVE, zone_of};
use crate::checks::Checks;

/// A new image passes all waves; returns the canary.
pub(super) fn waves(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<String> {
    let before = lab.release.audit()?.reads();
    lab.fleet.begin_count(lab.nodes());
    let seen = lab.change_canary("2", &[])?;
    let with = seen.with("2");
    checks.require(
        "only the canary, one node, has the new image",
        with.len() == 1 && seen.with(FIRST_TAG).len() == lab.nodes() - 1,
        &format!("{seen:?}"),
    );
    let canary = (*with.first().context("no node has it")?).to_owned();
    let seen = lab.next_wave("canary", "2", &[])?;
    let wave = seen.text("wave").trim_start_matches("zone ");
    let with = seen.with("2");
    let inside = |node: &&str| zone_of(node) <= wave || **node == *canary;
    checks.require(
        "then nodes of the first zone have it",
        with.len() > 1 && with.iter().all(inside) && wave < "zone-3",
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
    let what = format!(
        "at most {MAX_UNAVAILABLE} agents and the deleted one were missing at once (seen: {most})"
    );
    checks.require(&what, most <= MAX_UNAVAILABLE + 1, &most.to_string());
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

/// While a zone is watched, the leader is killed, and a pod is deleted on a node that the rollout has not reached.
fn in_the_middle(lab: &mut Lab<'_>, checks: &mut Checks, canary: &str) -> Result<String> {
    lab.kill_leader()?;
    let seen = lab.look()?;
    let before = seen.text("wave").to_owned();
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
    lab.change("2")?;
    let on = lab.until("another leader to go on", WAVE, |seen| {
        seen.text("wave") != before
    });
    checks.check("another controller continues the rollout", on.map(drop));
    Ok(pod.node)
}

/// A node that joins gets the current image.
pub(super) fn joins(lab: &Lab<'_>, checks: &mut Checks) -> Result<()> {
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
