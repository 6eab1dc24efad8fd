//! The permissions that the chart grants, compared with the controller's requests in the audit log.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::lab::Lab;
use crate::checks::Checks;

/// Permissions that the controller did not use here, each with the reason.
const UNUSED: [&str; 16] = [
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
    // Nothing was rolled out in waves; the scenario `agents` covers that.
    "patch nodes",
    "watch proxyplans",
];

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let audit = lab.audit()?;
    checks.check(
        "the controller needs no more permissions than the chart grants",
        audit.nothing_forbidden(),
    );
    let mut given = BTreeSet::new();
    for role in [
        "clusterrole/portolan-controller",
        "role/portolan-controller",
    ] {
        given.extend(rights(&lab.object(role)?["rules"])?);
    }
    let granted = audit.granted();
    let used = |right: &String| granted.contains_key(right) || UNUSED.contains(&right.as_str());
    let idle: Vec<_> = given.iter().filter(|right| !used(right)).collect();
    let needed = || {
        ensure!(idle.is_empty(), "it never did {idle:?}");
        Ok(())
    };
    checks.check("and the chart grants none that it does not use", needed());
    let access = lab.stage.files.text("api/access.yaml")?;
    let first = access.split("\n---\n").next().context("it is empty")?;
    let first: Value = serde_saphyr::from_str(first)?;
    let same = || {
        let (chart, lab) = (
            rights(&lab.object("clusterrole/portolan-controller")?["rules"])?,
            rights(&first["rules"])?,
        );
        ensure!(chart == lab, "{:?}", chart.symmetric_difference(&lab));
        Ok(())
    };
    checks.check(
        "other scenarios grant it the same permissions in the cluster",
        same(),
    );
    Ok(())
}

/// In the form of the audit log: `patch proxyplans/status`.
fn rights(rules: &Value) -> Result<BTreeSet<String>> {
    let texts = |rule: &Value, field: &str| -> Result<Vec<String>> {
        let list = rule[field]
            .as_array()
            .with_context(|| format!("no {field}"))?;
        let texts = list.iter().filter_map(Value::as_str);
        Ok(texts.map(str::to_owned).collect())
    };
    let mut all = BTreeSet::new();
    for rule in rules.as_array().context("no rules")? {
        for resource in texts(rule, "resources")? {
            for verb in texts(rule, "verbs")? {
                all.insert(format!("{verb} {resource}"));
            }
        }
    }
    Ok(all)
}
