//! Portolan objects in kubectl: tables, YAML, explanations, rejections.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::printed;
use super::rig::Rig;
use crate::checks::Checks;
use crate::control_plane::Options;
use crate::harness::run_parts;
use crate::scenario::Scenario;
use crate::stage::Stage;

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "objects",
    shows: "ProxyPlan, ProxyPlanSlice and ProxyConfig with kubectl: printed, explained, rejected",
    run,
};

/// Until the controller has published a change, on hardware: a plan is written at most every 30 s.
const PUBLISHED: Duration = Duration::from_secs(60);

/// One pod on each node, so that addresses are the same in every run.
const CLUSTER: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, labels: {app: web}}
spec:
  clusterIP: 10.96.0.80
  selector: {app: web}
  trafficDistribution: PreferSameNode
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: near, labels: {app: web}}
spec:
  clusterIP: 10.96.0.81
  selector: {app: web}
  internalTrafficPolicy: Local
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, labels: {app: web}}
spec: {nodeName: node-1, containers: [{name: web, image: none, ports: [{containerPort: 8080}]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-2, labels: {app: web}}
spec: {nodeName: node-2, containers: [{name: web, image: none, ports: [{containerPort: 8080}]}]}
";

/// Normalises printed text for comparison.
type Normal = fn(&str) -> String;

/// The kubectl arguments, how the output is normalised, and the file with the expected text.
const PRINTED: [(&[&str], Normal, &str); 7] = [
    (&["get", "pp"], printed::table, "get-pp.txt"),
    (
        &["get", "proxyconfigs"],
        printed::table,
        "get-proxyconfigs.txt",
    ),
    (
        &["get", "pp", "node-1", "-o", "yaml"],
        printed::yaml,
        "node-1.yaml",
    ),
    (
        &["get", "proxyconfig", "default", "-o", "yaml"],
        printed::yaml,
        "default.yaml",
    ),
    (
        &["explain", "proxyplan.spec"],
        printed::yaml,
        "explain-spec.txt",
    ),
    (
        &["explain", "proxyplan.status"],
        printed::yaml,
        "explain-status.txt",
    ),
    (
        &["explain", "proxyconfig.spec.settings"],
        printed::yaml,
        "explain-settings.txt",
    ),
];

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let mut rig = Rig::start(stage, Options::default(), 2, 1)?;
    rig.plane.apply(&match rig.prefers_nodes() {
        true => CLUSTER.to_owned(),
        false => CLUSTER.replace("PreferSameNode", "PreferClose"),
    })?;
    rig.kubelet.wait_running(stage.waits, 2, PUBLISHED)?;
    rig.start_controller()?;
    rig.start_agents(2)?;
    run_parts(
        &mut rig,
        checks,
        &[
            ("objects as kubectl prints them", printed_objects),
            ("a Node that is deleted", node_goes),
            ("objects that are refused", refusals),
        ],
    )
}

/// The text where nodes have no Service by hints for nodes.
fn without_nodal(mut text: String) -> String {
    let start = text.find("  - because: NodeHints\n");
    let end = text.find("  settingsRevision: ");
    if let (Some(start), Some(end)) = (start, end) {
        text.replace_range(start..end, "");
    }
    text
}

fn printed_objects(rig: &mut Rig<'_>, checks: &mut Checks) -> Result<()> {
    rig.wait_equal(PUBLISHED)?;
    let nodal = rig.prefers_nodes();
    for (words, normal, file) in PRINTED {
        let mut wanted = rig.stage.files.text(&format!("api/printed/{file}"))?;
        if !nodal {
            wanted = without_nodal(wanted);
        }
        let same = rig.eventually("the text to be as checked in", PUBLISHED, || {
            printed::compare(&normal(&rig.plane.kubectl(words)?), &wanted)
                .with_context(|| format!("api/printed/{file}"))
        });
        checks.check(&format!("kubectl {}", words.join(" ")), same);
    }
    Ok(())
}

fn node_goes(rig: &mut Rig<'_>, checks: &mut Checks) -> Result<()> {
    checks.check("the objects of a deleted Node are removed", {
        node_is_gone(rig)
    });
    Ok(())
}

fn node_is_gone(rig: &Rig<'_>) -> Result<()> {
    rig.plane.kubectl(&["delete", "node", "node-2"])?;
    rig.eventually("its ProxyPlan to go", PUBLISHED, || {
        let plans = rig.plane.kubectl(&["get", "pp", "-o", "name"])?;
        let left: Vec<_> = plans.lines().collect();
        let right = left == ["proxyplan.proxy.portolan.dev/node-1"];
        ensure!(right, "there are {left:?}");
        Ok(())
    })
}

/// An object that the API server rejects.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Refusal {
    /// Description of the mistake.
    what: String,
    /// The manifest.
    object: String,
    /// Text that the server's error contains.
    says: String,
}

fn refusals(rig: &mut Rig<'_>, checks: &mut Checks) -> Result<()> {
    let table = rig.stage.files.text("api/refused.yaml")?;
    let refusals: Vec<Refusal> = serde_saphyr::from_str(&table)?;
    for Refusal { what, object, says } in &refusals {
        let words = ["create", "--dry-run=server", "--validate=strict", "-f", "-"];
        let said = match rig.plane.kubectl_with_input(&words, object) {
            Ok(_) => Err(anyhow::anyhow!("the API server accepted it")),
            Err(error) if format!("{error:#}").contains(says) => Ok(()),
            Err(error) => Err(anyhow::anyhow!("{says:?} is not in: {error:#}")),
        };
        checks.check(&format!("refused: {what}"), said);
    }
    if refusals.is_empty() {
        bail!("the table of rejected objects is empty");
    }
    Ok(())
}
