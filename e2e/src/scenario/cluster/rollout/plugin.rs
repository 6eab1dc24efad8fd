//! `kubectl proxyplan` on a cluster with a rollout of settings: pause, resume, undo, and commands that show nodes.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::super::replicas::Replicas;
use super::{NODES, STEP, look, until};
use crate::checks::Checks;
use crate::control_plane::Reach;
use crate::program::Program;

/// The scheduler of the nodes before and after.
const FORMER: &str = "lc";
/// The scheduler that was rolled back.
const FAILING: &str = "sed";

/// A Service for `explain`, with one static endpoint.
const WEB: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.80, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.244.1.77], conditions: {ready: true}}]
";

impl Replicas<'_> {
    /// Runs the plugin; returns its exit code, standard output and standard error.
    fn plugin(&self, words: &[&str]) -> Result<(i32, String, String)> {
        let kubeconfig = self.rig.plane.kubeconfig(Reach::Here);
        let kubeconfig = kubeconfig.display().to_string();
        let words = [words, &["--kubeconfig", &kubeconfig]].concat();
        let ended = Program::ProxyPlan.try_with_input(&words, "")?;
        let code = ended.status.code().context("it was killed")?;
        Ok((code, ended.output, ended.errors))
    }

    /// The same for a command that has to succeed; returns its output.
    fn printed(&self, words: &[&str]) -> Result<String> {
        let (code, printed, said) = self.plugin(words)?;
        ensure!(code == 0, "{words:?} ended with {code}: {printed}{said}");
        Ok(printed)
    }
}

pub(super) fn run(replicas: &mut Replicas<'_>, checks: &mut Checks) -> Result<()> {
    replicas.rig.plane.apply(WEB)?;
    try_again(replicas, checks)?;
    hold_and_undo(replicas, checks)?;
    checks.check("rollout history lists the revisions to undo to", {
        history(replicas)
    });
    checks.check(
        "show: the locally computed plan is the one in force on the node",
        in_force(replicas),
    );
    checks.check("top: all nodes are healthy", top(replicas));
    checks.check(
        "diff: what two nodes have in common and where they differ",
        differ(replicas),
    );
    checks.check("explain: why an endpoint is served", explained(replicas));
    checks.check("an unknown node is named in the error", unknown(replicas));
    checks.check("shell completion works", completes());
    Ok(())
}

/// A change that was rolled back a moment ago is retried and fails again.
fn try_again(replicas: &Replicas<'_>, checks: &mut Checks) -> Result<()> {
    let agents = replicas.rig.agents()?;
    let failed: Vec<_> = agents.disliked().map(str::to_owned).collect();
    agents.dislike(FAILING, failed.iter().map(String::as_str));
    let resumed = replicas.printed(&["rollout", "resume"])?;
    until(replicas, "it to fail again", STEP, |_| {
        agents.disliked().next().is_some()
    })?;
    let seen = until(replicas, "it to be rolled back again", STEP, |seen| {
        seen.text("phase") == "RolledBack" && seen.with(FORMER).len() == usize::from(NODES)
    });
    checks.check(
        "rollout resume: a change that was rolled back is retried",
        seen.map(drop),
    );
    checks.require("it says so", resumed.trim() == "resumed", &resumed);
    Ok(())
}

fn hold_and_undo(replicas: &Replicas<'_>, checks: &mut Checks) -> Result<()> {
    checks.check(
        "rollout pause",
        replicas.printed(&["rollout", "pause"]).map(drop),
    );
    replicas
        .rig
        .configure(&json!({"settings": {"scheduler": "wlc"}}))?;
    let seen = until(replicas, "the pause", STEP, |seen| {
        seen.text("phase") == "Paused"
    })?;
    checks.require(
        "a paused change reaches no node",
        seen.with("wlc").is_empty(),
        &format!("{seen:?}"),
    );
    let (code, printed, _) = replicas.plugin(&["rollout", "status"])?;
    checks.require(
        "rollout status reports the pause and exits with code 1",
        code == 1 && printed.contains("is paused"),
        &printed,
    );
    replicas
        .rig
        .configure(&json!({"rollout": {"soak": "10m"}}))?;
    replicas.printed(&["rollout", "resume"])?;
    let seen = until(replicas, "it to go on", STEP, |seen| {
        seen.text("phase") == "Soaking" && seen.with("wlc").len() == 1
    });
    checks.check("rollout resume: it continues with a canary", seen.map(drop));
    let printed = replicas.printed(&["rollout", "undo"])?;
    let seen = until(replicas, "the undo", STEP, |seen| {
        seen.text("phase") == "Complete" && seen.with(FORMER).len() == usize::from(NODES)
    });
    checks.check(
        "rollout undo: the canary has its previous settings again",
        seen.map(drop),
    );
    let printed = printed + &replicas.printed(&["rollout", "status"])?;
    checks.require(
        "a condition reports that the spec is not in force",
        printed.matches("redo").count() == 2,
        &printed,
    );
    Ok(())
}

fn history(replicas: &Replicas<'_>) -> Result<()> {
    let current = look(&replicas.rig)?.text("currentRevision").to_owned();
    let printed = replicas.printed(&["rollout", "history"])?;
    let in_force = printed.lines().filter(|line| line.ends_with("in force"));
    let in_force: Vec<_> = in_force.collect();
    ensure!(
        in_force.len() == 1 && in_force[0].starts_with(&current),
        "{current}: {printed}"
    );
    ensure!(printed.lines().count() > 3, "{printed}");
    Ok(())
}

fn in_force(replicas: &Replicas<'_>) -> Result<()> {
    let printed = replicas.eventually("the same plan", STEP, || {
        let (code, printed, said) = replicas.plugin(&["show", "node-1", "-o", "json"])?;
        ensure!(code == 0, "it ended with {code}: {said}");
        let in_force = said.contains("node-1 has this plan in force");
        ensure!(in_force, "{said}");
        Ok(printed)
    })?;
    let plan: Value = serde_json::from_str(&printed)?;
    ensure!(plan["settings"]["scheduler"] == FORMER, "{printed}");
    Ok(())
}

fn top(replicas: &Replicas<'_>) -> Result<()> {
    let rows: Value = serde_json::from_str(&replicas.printed(&["top", "-o", "json"])?)?;
    let rows = rows.as_array().context("it is no list")?;
    ensure!(rows.len() == usize::from(NODES), "{rows:?}");
    ensure!(rows.iter().all(|row| row["state"] == "InForce"), "{rows:?}");
    let table = replicas.printed(&["top", "--limit", "3"])?;
    ensure!(table.contains("and 9 more"), "{table}");
    Ok(())
}

fn differ(replicas: &Replicas<'_>) -> Result<()> {
    let (code, printed, said) = replicas.plugin(&["diff", "node-1", "node-2", "-o", "json"])?;
    ensure!(code == 1, "it ended with {code}: {said}");
    let difference: Value = serde_json::from_str(&printed)?;
    let zones = difference["nodes"].to_string();
    ensure!(
        zones.contains("zone-1") && zones.contains("zone-2"),
        "{printed}"
    );
    let (code, printed, said) = replicas.plugin(&["diff", "node-1", "node-1"])?;
    ensure!(code == 0 && printed.contains("Nothing"), "{printed}{said}");
    Ok(())
}

fn explained(replicas: &Replicas<'_>) -> Result<()> {
    let words = ["explain", "--node", "node-1", "--service", "default/web"];
    let table = replicas.printed(&words)?;
    ensure!(table.contains("10.244.1.77"), "{table}");
    Ok(())
}

fn unknown(replicas: &Replicas<'_>) -> Result<()> {
    let (code, _, said) = replicas.plugin(&["show", "node-99"])?;
    ensure!(code == 2, "it ended with {code}: {said}");
    let expected = format!("error: Node node-99: not in the cluster (there are {NODES}: node-1");
    ensure!(said.starts_with(&expected), "{said}");
    Ok(())
}

fn completes() -> Result<()> {
    let ended = Program::ProxyPlan.try_with_input(&["completion", "bash"], "")?;
    let words = ["rollout", "--kubeconfig"];
    let has_all = words.iter().all(|word| ended.output.contains(word));
    ensure!(ended.status.success() && has_all, "{}", ended.errors);
    Ok(())
}
