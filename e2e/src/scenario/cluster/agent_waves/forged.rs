//! A client that may write the status of the ProxyConfig forges the agents of the revision in force. No pod comes from
//! it, and after the repair of the status the template of the chart applies.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::lab::{Lab, Seen};
use super::statuses::settled;
use super::{QUIET, STEP, WAVE};
use crate::checks::Checks;
use crate::harness::Environment as _;

/// The image of the forger.
const EVIL: &str = "registry.example.com/evil:1";
/// A hash that no template has.
const HASH: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
/// The ConfigMap of recorded templates.
const HISTORY: &str = "configmap/portolan-agents-history";

/// The chart has image 4, which was undone, so nodes have another one.
pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let before = lab.look()?.tags();
    forge(lab, &inline(lab)?)?;
    std::thread::sleep(QUIET);
    checks.check(
        "a DaemonSet that a client writes into the status is created nowhere",
        untouched(lab, &before),
    );
    forge(lab, &json!({"sha256": HASH, "image": EVIL}))?;
    let reported = lab.stage.waits.eventually("the condition", STEP, || {
        let condition = lab.release.condition("AgentsManaged")?;
        let message = condition["message"].as_str().unwrap_or_default();
        ensure!(
            condition["reason"] == "TemplateNotRecorded" && message.contains(HASH),
            "{condition}"
        );
        Ok(())
    });
    checks.check(
        "a hash that the namespace has not recorded is reported",
        reported.map_err(|error| lab.with_logs(error)),
    );
    checks.check("and changes no agent", untouched(lab, &before));
    let remove = r#"[{"op": "remove", "path": "/status/rollout"}]"#;
    patch(lab, "json", remove)?;
    lab.rollout("redo")?;
    let nodes = lab.nodes() + 1;
    let chart = |seen: &Seen| seen.text("phase") == "Complete" && seen.with("4").len() == nodes;
    let repaired = lab.until("all nodes to have the image of the chart", WAVE, chart);
    checks.check(
        "without the forged state, all nodes get the template of the chart",
        repaired.map(drop),
    );
    checks.check(
        "the ConfigMap has the templates that revisions refer to",
        recorded(lab),
    );
    settled(lab)
}

/// The DaemonSet of the agents, with another image.
fn inline(lab: &Lab<'_>) -> Result<Value> {
    let map = lab.release.object("configmap/portolan-agents")?;
    let text = map["data"]["daemonset.yaml"].as_str();
    let mut set: Value = serde_saphyr::from_str(text.context("there is no template")?)?;
    set["spec"]["template"]["spec"]["containers"][0]["image"] = EVIL.into();
    Ok(set)
}

/// Replaces the agents of the revision in force.
fn forge(lab: &Lab<'_>, agents: &Value) -> Result<()> {
    let seen = lab.look()?;
    let mut history = seen.status["history"].clone();
    let records = history.as_array_mut().context("there is no history")?;
    let current = seen.text("currentRevision");
    let record = records
        .iter_mut()
        .find(|record| record["revision"] == current);
    let record = record.context("the history lacks the current revision")?;
    let text = record["content"].as_str().unwrap_or_default();
    let mut content: Value = serde_json::from_str(text)?;
    ensure!(content["agents"]["sha256"].is_string() || content["agents"]["spec"].is_object());
    content["agents"] = agents.clone();
    record["content"] = content.to_string().into();
    let status = json!({"status": {"rollout": {"history": history}}});
    patch(lab, "merge", &status.to_string())
}

fn patch(lab: &Lab<'_>, kind: &str, patch: &str) -> Result<()> {
    let kind = format!("--type={kind}");
    let words = [
        "patch",
        "proxyconfig",
        "default",
        "--subresource=status",
        &kind,
        "-p",
        patch,
    ];
    lab.release.plane.kubectl(&words).map(drop)
}

/// No object of the cluster that creates pods has the forger's image, and all nodes have their agents.
fn untouched(lab: &Lab<'_>, before: &BTreeMap<String, String>) -> Result<()> {
    let words = ["get", "daemonsets,pods", "--all-namespaces", "-o", "json"];
    let objects = lab.release.plane.kubectl(&words)?;
    ensure!(!objects.contains(EVIL), "{EVIL} is in an object");
    let after = lab.look()?.tags();
    ensure!(after == *before, "{before:?} became {after:?}");
    Ok(())
}

/// Each revision refers to a recorded template, which has the image that the revision names.
fn recorded(lab: &Lab<'_>) -> Result<()> {
    let map = lab.release.object(HISTORY)?;
    let data = map["data"].as_object().context("it is empty")?;
    let owner = &map["metadata"]["ownerReferences"][0]["name"];
    ensure!(*owner == "portolan-agents", "it is of {owner}");
    let seen = lab.look()?;
    let history = seen.status["history"].as_array();
    let history = history.context("there is no history")?;
    for record in history {
        let content = record["content"].as_str().unwrap_or_default();
        let content: Value = serde_json::from_str(content)?;
        let hash = content["agents"]["sha256"].as_str().unwrap_or_default();
        let text = data.get(hash).and_then(Value::as_str);
        let text = text.with_context(|| format!("{hash} is not recorded"))?;
        let set: Value = serde_json::from_str(text)?;
        let image = &set["spec"]["template"]["spec"]["containers"][0]["image"];
        ensure!(*image == content["agents"]["image"], "{content}: {image}");
    }
    Ok(())
}
