//! Conditions of the ProxyConfig about agents and about kube-proxy pods beside them, and the Lease of the controller.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::lab::Lab;
use crate::checks::Checks;

/// Until a condition is set, on hardware: the controller looks for kube-proxy every 30 s.
const SAID: Duration = Duration::from_secs(90);

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    checks.check(
        "the controller creates its Lease, which is deleted with the release",
        lease(lab),
    );
    let fine = || {
        let kinds = ["OnlyServiceProxy", "AgentsManaged"];
        kinds
            .into_iter()
            .try_for_each(|kind| wait(lab, kind, "True", ""))
    };
    checks.check(
        "the ProxyConfig reports agents as managed, and no kube-proxy",
        fine(),
    );
    lab.plane.apply(&kube_proxy().to_string())?;
    let text = "node node-2 has a pod of kube-proxy";
    let said = wait(lab, "OnlyServiceProxy", "False", text);
    checks.check("a kube-proxy pod on a node with an agent is reported", said);
    checks.check("and an event reports it", event(lab, "KubeProxy"));
    let line = "delete pod kube-proxy-1 -n kube-system --force --grace-period=0";
    lab.plane.kubectl_line(line)?;
    checks.check("and no longer once the pod is deleted", fine());
    Ok(())
}

fn lease(lab: &Lab<'_>) -> Result<()> {
    let lease = lab.object("lease/portolan-controller")?;
    let owner = &lease["metadata"]["ownerReferences"][0];
    ensure!(
        (&owner["kind"], &owner["name"]) == (&"ConfigMap".into(), &"portolan-agents".into()),
        "it goes with {owner}"
    );
    Ok(())
}

/// Waits for a condition, and a text in its message.
fn wait(lab: &Lab<'_>, kind: &str, wanted: &str, says: &str) -> Result<()> {
    lab.eventually(&format!("{kind} {wanted}"), SAID, || {
        let condition = lab.condition(kind)?;
        let message = condition["message"].as_str().unwrap_or_default();
        ensure!(
            condition["status"] == wanted && message.contains(says),
            "{condition}"
        );
        Ok(())
    })
}

/// A kube-proxy pod as an installer creates it.
fn kube_proxy() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "kube-proxy-1", "namespace": "kube-system", "labels": {"k8s-app": "kube-proxy"},
        },
        "spec": {
            "nodeName": "node-2", "hostNetwork": true, "containers": [{"name": "kube-proxy", "image": "none"}],
        },
    })
}

fn event(lab: &Lab<'_>, reason: &str) -> Result<()> {
    // Events of cluster-scoped objects are in this namespace.
    let words = ["get", "events.events.k8s.io", "-n", "default", "-o", "json"];
    lab.eventually(&format!("an event {reason}"), SAID, || {
        let events: Value = serde_json::from_str(&lab.plane.kubectl(&words)?)?;
        let mut events = events["items"].as_array().into_iter().flatten();
        let found = events
            .any(|event| event["reason"] == reason && event["regarding"]["kind"] == "ProxyConfig");
        ensure!(found, "there is none");
        Ok(())
    })
}
