//! Agent pods that the cluster rejects: the ProxyConfig reports it until the pods exist.

use anyhow::{Result, ensure};

use super::super::release::NAMESPACE;
use super::STEP;
use super::lab::Lab;
use crate::checks::Checks;
use crate::harness::Environment as _;

/// The label by which a namespace admits only unprivileged pods.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
/// Pods of agents.
const PODS: &str = "app.kubernetes.io/component=agent";

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    checks.check(
        "while agent pods exist, the ProxyConfig reports them as managed",
        wait(lab, "True", ""),
    );
    let plane = &lab.release.plane;
    plane.kubectl_line(&format!(
        "label namespace {NAMESPACE} --overwrite {ENFORCE}=restricted"
    ))?;
    plane.kubectl_line(&format!(
        "delete pods -n {NAMESPACE} -l {PODS} --force --grace-period=0"
    ))?;
    checks.check(
        "pods rejected by Pod Security are reported, with the label that admits them",
        wait(lab, "False", ENFORCE),
    );
    plane.kubectl_line(&format!("label namespace {NAMESPACE} {ENFORCE}-"))?;
    // The DaemonSet controller backs off after each failure, unless the DaemonSet changes.
    let restart = format!("rollout restart daemonset -n {NAMESPACE}");
    plane.kubectl_line(&restart)?;
    checks.check(
        "once they exist, nothing is reported",
        wait(lab, "True", ""),
    );
    Ok(())
}

/// Waits until `AgentsManaged` has this status and a text in its message.
fn wait(lab: &Lab<'_>, wanted: &str, says: &str) -> Result<()> {
    let what = format!("AgentsManaged {wanted}");
    let waited = lab.stage.waits.eventually(&what, STEP, || {
        let condition = lab.release.condition("AgentsManaged")?;
        let message = condition["message"].as_str().unwrap_or_default();
        ensure!(
            condition["status"] == wanted && message.contains(says),
            "{condition}"
        );
        Ok(())
    });
    waited.map_err(|error| lab.with_logs(error))
}
