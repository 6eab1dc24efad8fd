//! The permissions that the chart grants, compared with the controller's requests in the audit log.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::lab::Lab;
use crate::checks::Checks;

/// Permissions that the controller did not use here, each with the reason.
const UNUSED: [&str; 14] = [
    // Server-side apply needs it if the object does not exist; the audit log records a patch.
    "create configmaps",
    "create daemonsets",
    "create proxyplans",
    "create proxyplanslices",
    // The chart has created it.
    "create proxyconfigs",
    // Only the health and metrics pages were read.
    "create subjectaccessreviews",
    // No node or Service was deleted.
    "delete proxyplans",
    "delete proxyplanslices",
    // Used after a write whose response was lost.
    "get proxyplans",
    // Used where the server cannot stream lists, as with etcd below 3.5.
    "list endpointslices",
    "list nodes",
    "list proxyconfigs",
    "list servicecidrs",
    "list services",
];
/// A kind of object that Kubernetes serves from 1.33 on.
const CIDRS: &str = "servicecidrs.networking.k8s.io";
/// Permissions for changes in waves, which the chart grants only if they are configured. The scenario `agents` uses
/// them.
const WAVES: [&str; 2] = ["patch nodes", "watch proxyplans"];
/// Until the controller has reported that it lacks a permission: three attempts with backoff, on hardware.
const REPORTED: Duration = Duration::from_secs(60);

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let audit = lab.audit()?;
    checks.check(
        "the controller needs no more permissions than the chart grants",
        audit.nothing_forbidden(),
    );
    let mut given = in_cluster(lab)?;
    given.extend(rights(&lab.object("role/portolan-controller")?["rules"])?);
    let granted = audit.granted();
    let lacks_cidrs = !lab
        .plane
        .kubectl(&["api-resources", "-o", "name"])?
        .contains(CIDRS);
    let used = |right: &String| {
        granted.contains_key(right)
            || UNUSED.contains(&right.as_str())
            || (lacks_cidrs && right.ends_with(" servicecidrs"))
    };
    let idle: Vec<_> = given.iter().filter(|right| !used(right)).collect();
    let needed = || {
        ensure!(idle.is_empty(), "it never did {idle:?}");
        Ok(())
    };
    checks.check("and the chart grants none that it does not use", needed());
    checks.check(
        "a change in waves without the permissions for it names the value of the chart",
        without_waves(lab),
    );
    checks.check(
        "other scenarios grant it the same permissions in the cluster, with those for waves",
        same(lab),
    );
    Ok(())
}

/// What the controller may do in the cluster.
fn in_cluster(lab: &Lab<'_>) -> Result<BTreeSet<String>> {
    rights(&lab.object("clusterrole/portolan-controller")?["rules"])
}

/// Another tool adds waves to the ProxyConfig, and removes them again.
fn without_waves(lab: &Lab<'_>) -> Result<()> {
    let given = in_cluster(lab)?;
    ensure!(
        WAVES.iter().all(|right| !given.contains(*right)),
        "{given:?}"
    );
    let patch = |patch: &str| {
        let words = ["patch", "proxyconfig", "default", "--type=merge", "-p"];
        lab.plane.kubectl(&[&words[..], &[patch]].concat())
    };
    // Fields that helm does not write, so that its next upgrade finds no conflict.
    patch(r#"{"spec": {"rollout": {}, "settings": {"drain": {"deadline": "31s"}}}}"#)?;
    let value = "ProxyPlans (rbac.waves of the chart)";
    lab.eventually("the controller to report it", REPORTED, || {
        let said = std::fs::read_to_string(lab.file("controller.log"))?;
        ensure!(said.contains(value), "its log has no {value:?}");
        Ok(())
    })?;
    patch(r#"{"spec": {"rollout": null, "settings": {"drain": null}}}"#).map(drop)
}

/// With waves, the permissions are those in the file of the other scenarios.
fn same(lab: &Lab<'_>) -> Result<()> {
    let waves = ["--set", "rbac.waves=true"];
    let former = [
        "--set",
        "agents.log=debug",
        "--set",
        "config.spec.settings.scheduler=lc",
    ];
    lab.upgrade(&[&waves[..], &former].concat())?;
    let access = lab.stage.files.text("api/access.yaml")?;
    let first = access.split("\n---\n").next().context("it is empty")?;
    let first: Value = serde_saphyr::from_str(first)?;
    let (chart, other) = (in_cluster(lab)?, rights(&first["rules"])?);
    ensure!(
        WAVES.iter().all(|right| chart.contains(*right)),
        "{chart:?}"
    );
    ensure!(chart == other, "{:?}", chart.symmetric_difference(&other));
    Ok(())
}

/// In the form of the audit log: `patch proxyplans/status`, `get /openid/v1/jwks`.
fn rights(rules: &Value) -> Result<BTreeSet<String>> {
    let texts = |rule: &Value, field: &str| -> Vec<String> {
        let list = rule[field].as_array().into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut all = BTreeSet::new();
    for rule in rules.as_array().context("no rules")? {
        let what = [texts(rule, "resources"), texts(rule, "nonResourceURLs")].concat();
        ensure!(!what.is_empty(), "a rule about nothing: {rule}");
        for resource in what {
            for verb in texts(rule, "verbs") {
                all.insert(format!("{verb} {resource}"));
            }
        }
    }
    Ok(all)
}
