//! What people are told as events: of nodes that fail, of a change that is taken back, of a Service that says
//! something impossible (S-209).

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::{STEP, Story};
use crate::scenario::Checks;

/// Warnings about Services are stored twice a minute at most.
const STORED: Duration = Duration::from_secs(60);

/// After some nodes failed and a change was taken back.
pub(super) fn after_failure(story: &Story<'_, '_>, checks: &mut Checks, failed: &[String]) {
    let of_nodes = |event: &Value| {
        event["type"] == "Warning"
            && event["reason"] == "OperationsFailed"
            && event["regarding"]["kind"] == "Node"
            && failed
                .iter()
                .any(|node| event["regarding"]["name"] == **node)
    };
    checks.check(
        "an event tells of a node that failed (S-209)",
        told(story, STEP, of_nodes),
    );
    let of_settings = |event: &Value| {
        event["type"] == "Warning"
            && event["reason"] == "RolledBack"
            && event["regarding"]["kind"] == "ProxyConfig"
    };
    checks.check(
        "an event tells that the change was taken back",
        told(story, STEP, of_settings),
    );
}

/// With a Service that cannot be meant so.
pub(super) fn of_service(story: &Story<'_, '_>, checks: &mut Checks) -> Result<()> {
    let annotate = |value: &str| {
        let words = ["annotate", "service", "web", "--overwrite", value];
        story.rig.plane.kubectl(&words)
    };
    annotate("proxy.portolan.dev/drain=tomorrow")?;
    let described = || {
        let words = ["describe", "service", "web"];
        let text = story.rig.plane.kubectl(&words)?;
        let events = text.split("Events:").nth(1).unwrap_or_default();
        Ok((events.contains("Warning") && events.contains("tomorrow")).then_some(()))
    };
    let missing = || format!("{:?}", story.rig.plane.kubectl(&["get", "events"]));
    let waits = story.stage.waits;
    let seen = waits.until("the event", STORED, super::LOOK, described, missing);
    checks.check(
        "kubectl describe service tells what is wrong with it (S-209)",
        seen,
    );
    annotate("proxy.portolan.dev/drain-")?;
    Ok(())
}

fn told(story: &Story<'_, '_>, limit: Duration, is: impl Fn(&Value) -> bool) -> Result<()> {
    let events = || -> Result<Vec<Value>> {
        let words = ["get", "events.events.k8s.io", "-n", "default", "-o", "json"];
        let list: Value = serde_json::from_str(&story.rig.plane.kubectl(&words)?)?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    };
    let asked = || Ok(events()?.iter().any(&is).then_some(()));
    let missing = || {
        let events = events().unwrap_or_default();
        let lines = events.iter().map(|event| {
            format!(
                "{} {} {}/{}: {}",
                event["type"],
                event["reason"],
                event["regarding"]["kind"],
                event["regarding"]["name"],
                event["note"]
            )
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    story
        .stage
        .waits
        .until("the event", limit, super::LOOK, asked, missing)
}
