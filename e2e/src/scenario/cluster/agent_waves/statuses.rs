//! What the statuses of all nodes report: the pods of agents, their versions, and whether plans are applied.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use super::lab::{Lab, Seen};
use super::{FIRST, STEP};
use crate::checks::Checks;
use crate::harness::Environment as _;

/// Each status names the pod that reported it, because a rollout counts only reports of a node's new agent.
pub(super) fn reporters(lab: &Lab<'_>, checks: &mut Checks, when: &str) {
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
pub(super) fn versions(lab: &Lab<'_>, checks: &mut Checks, when: &str) -> Result<()> {
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
pub(super) fn settled(lab: &Lab<'_>) -> Result<()> {
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
