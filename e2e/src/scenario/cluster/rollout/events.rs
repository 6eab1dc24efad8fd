//! Events: about nodes that fail, a rollout that is rolled back, and a Service with an invalid setting (S-209).

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::super::replicas::Replicas;
use super::STEP;
use crate::checks::Checks;

/// Warnings about Services are stored twice a minute at most.
const STORED: Duration = Duration::from_secs(60);

/// Checks the events after some nodes failed and a change was rolled back.
pub(super) fn after_failure(replicas: &Replicas<'_>, checks: &mut Checks, failed: &[String]) {
    let of_nodes = |event: &Value| {
        event["type"] == "Warning"
            && event["reason"] == "OperationsFailed"
            && event["regarding"]["kind"] == "Node"
            && failed
                .iter()
                .any(|node| event["regarding"]["name"] == **node)
    };
    checks.check(
        "an event reports a node that failed (S-209)",
        has_event(replicas, STEP, of_nodes),
    );
    let described = replicas.eventually("the event of a node", STEP, || {
        let nodes = failed.iter();
        let texts = nodes.map(|node| replicas.rig.plane.kubectl(&["describe", "node", node]));
        let texts = texts.collect::<Result<Vec<_>>>()?;
        let seen = texts.iter().any(|text| text.contains("OperationsFailed"));
        ensure!(seen, "{}", texts.join("\n"));
        Ok(())
    });
    checks.check("kubectl describe node shows it (S-209)", described);
    let of_settings = |event: &Value| {
        event["type"] == "Warning"
            && event["reason"] == "RolledBack"
            && event["regarding"]["kind"] == "ProxyConfig"
    };
    checks.check(
        "an event reports that the change was rolled back",
        has_event(replicas, STEP, of_settings),
    );
}

/// Checks the event about a Service with an invalid annotation.
pub(super) fn of_service(replicas: &mut Replicas<'_>, checks: &mut Checks) -> Result<()> {
    let annotate = |value: &str| {
        let words = ["annotate", "service", "web", "--overwrite", value];
        replicas.rig.plane.kubectl(&words)
    };
    annotate("proxy.portolan.dev/drain=tomorrow")?;
    let seen = replicas.eventually("the event", STORED, || {
        let words = ["describe", "service", "web"];
        let text = replicas.rig.plane.kubectl(&words)?;
        let events = text.split("Events:").nth(1).unwrap_or_default();
        let has_event = events.contains("Warning") && events.contains("tomorrow");
        ensure!(has_event, "{text}");
        Ok(())
    });
    checks.check(
        "kubectl describe service shows what is wrong with it (S-209)",
        seen,
    );
    annotate("proxy.portolan.dev/drain-")?;
    Ok(())
}

fn has_event(replicas: &Replicas<'_>, limit: Duration, is: impl Fn(&Value) -> bool) -> Result<()> {
    let words = ["get", "events.events.k8s.io", "-n", "default", "-o", "json"];
    replicas.eventually("the event", limit, || {
        let list: Value = serde_json::from_str(&replicas.rig.plane.kubectl(&words)?)?;
        let events = list["items"].as_array().cloned().unwrap_or_default();
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
        let has_event = events.iter().any(&is);
        ensure!(has_event, "{}", lines.collect::<Vec<_>>().join("\n"));
        Ok(())
    })
}
