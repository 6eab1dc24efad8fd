//! What the ProxyConfig says of agents, and of pods of kube-proxy beside them; and the Lease that the controller makes.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::lab::Lab;
use crate::scenario::Checks;

/// Until a condition says it, on hardware: kube-proxy is looked for every 30 s.
const SAID: Duration = Duration::from_secs(90);

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    checks.check(
        "the controller makes its Lease, which goes with the release",
        lease(lab),
    );
    let fine = || {
        let kinds = ["OnlyServiceProxy", "AgentsManaged"];
        kinds
            .into_iter()
            .try_for_each(|kind| wait(lab, kind, "True", ""))
    };
    checks.check(
        "the ProxyConfig says that agents are kept, and that there is no kube-proxy",
        fine(),
    );
    lab.plane.apply(&kube_proxy().to_string())?;
    let text = "node node-2 has a pod of kube-proxy";
    let said = wait(lab, "OnlyServiceProxy", "False", text);
    checks.check("a pod of kube-proxy on a node of agents is said", said);
    checks.check("and there is an event of it", event(lab, "KubeProxy"));
    let line = "delete pod kube-proxy-1 -n kube-system --force --grace-period=0";
    lab.plane.kubectl_line(line)?;
    checks.check("and no longer when it is gone", fine());
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

/// As an installer makes one.
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
    // Those of objects without a namespace are here.
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
