//! Input that makes no sense and that the API server lets pass: said once, where it belongs, and
//! nothing else suffers.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::rig::{Rig, Size};
use crate::control_plane::Options;
use crate::scenario::{Checks, Scenario, Stage};

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "bad-input",
    shows: "what the API server lets pass and makes no sense: one warning each, where it belongs",
    run,
};

/// Until a warning is published, on hardware.
const PUBLISHED: Duration = Duration::from_secs(75);

/// Services that deserve a warning, and the Node.
const SERVICES: [&str; 2] = ["Service default/longname", "Service default/v4only"];
const NODE: &str = "Node nowhere";
/// Lines in the controller's log about each object.
const LINES: [(&str, usize); 6] = [
    ("Service default/v4only", 1),
    ("EndpointSlice default/v4only-six", 0),
    ("Service default/longname", 1),
    (NODE, 1),
    ("Service default/byhand", 0),
    ("EndpointSlice default/byhand-1", 0),
];

const LATER: &str = "
apiVersion: v1
kind: Service
metadata: {name: later}
spec: {clusterIP: 10.96.0.7, ports: [{name: http, port: 80}]}
";

/// A slice of `byhand` with one endpoint on node-1.
fn on_node(name: &str, address: &str) -> String {
    format!(
        "
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}, labels: {{kubernetes.io/service-name: byhand}}}}
addressType: IPv4
ports: [{{name: http, port: 8080, protocol: TCP}}]
endpoints: [{{addresses: [{address}], nodeName: node-1}}]
"
    )
}

fn cluster() -> String {
    let scheduler = "r".repeat(300);
    format!(
        "
apiVersion: v1
kind: Service
metadata: {{name: v4only}}
spec: {{clusterIP: 10.96.0.4, ports: [{{name: http, port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: v4only-six, labels: {{kubernetes.io/service-name: v4only}}}}
addressType: IPv6
ports: [{{name: http, port: 8080, protocol: TCP}}]
endpoints: [{{addresses: ['fd00:10:244:1::9']}}]
---
apiVersion: v1
kind: Service
metadata: {{name: longname, annotations: {{proxy.portolan.dev/scheduler: {scheduler}}}}}
spec: {{clusterIP: 10.96.0.5, ports: [{{name: http, port: 80}}]}}
---
apiVersion: v1
kind: Node
metadata: {{name: nowhere}}
spec: {{podCIDR: 10.244.9.0/24, podCIDRs: [10.244.9.0/24, 'fd00:10:244:9::/64']}}
---
apiVersion: v1
kind: Service
metadata: {{name: byhand}}
spec: {{clusterIP: 10.96.0.6, ports: [{{name: http, port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: byhand-1, labels: {{kubernetes.io/service-name: byhand}}}}
addressType: IPv4
ports: [{{name: http, port: 8080, protocol: TCP}}]
endpoints: [{{addresses: [10.244.1.77]}}]
"
    )
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let size = Size {
        nodes: 1,
        pods_a_node: 1,
    };
    let mut rig = Rig::start(stage, Options::default(), &size)?;
    rig.start_controller()?;
    rig.start_agents(1)?;
    rig.wait_first_plans()?;
    rig.plane.apply(&cluster())?;
    let config = ["proxyconfig", "default", "/status/warnings"];
    checks.check(
        "one warning about each Service in the ProxyConfig's status, none about the rest",
        published(stage, &rig, config, &SERVICES),
    );
    checks.check(
        "one warning about the Node without addresses, in its ProxyPlan",
        published(stage, &rig, ["pp", "nowhere", "/spec/warnings"], &[NODE]),
    );
    // Touching the objects says nothing again.
    let objects = [
        "service/v4only",
        "service/longname",
        "node/nowhere",
        "service/byhand",
    ];
    for object in objects {
        rig.plane.kubectl(&["annotate", object, "touched=yes"])?;
    }
    // What comes after the touches is in the plans, so the touches were seen.
    rig.plane.apply(LATER)?;
    rig.wait_equal(PUBLISHED)?;
    let said = rig.controller_said()?;
    for (object, due) in LINES {
        let begins = format!("{object}: ");
        let about = |line: &&str| {
            let said = line.split_once("journal: ").map(|(_, said)| said);
            said.is_some_and(|said| said.starts_with(&begins))
        };
        let lines: Vec<_> = said.lines().filter(about).collect();
        let logged = if lines.len() == due {
            Ok(())
        } else {
            Err(anyhow::anyhow!("{lines:#?}"))
        };
        checks.check(&format!("{object}: {due} in the log"), logged);
    }
    checks.check("endpoints without conditions serve", serves(&rig));
    outside_ranges(stage, &rig, checks)?;
    rig.check_running()
}

/// A pod has an address that its node does not take for one of its pods' (S-70).
fn outside_ranges(stage: &Stage, rig: &Rig<'_>, checks: &mut Checks) -> Result<()> {
    checks.check(
        "the condition PodsInRanges is Unknown while no endpoint names a node",
        in_ranges(stage, rig, "Unknown"),
    );
    rig.plane.apply(&on_node("near", "10.244.1.78"))?;
    checks.check(
        "it is True while pods are in the ranges of their nodes",
        in_ranges(stage, rig, "True"),
    );
    rig.plane.apply(&on_node("stray", "10.99.0.9"))?;
    checks.check(
        "it is False once one is not",
        in_ranges(stage, rig, "False"),
    );
    checks.check(
        "the node's ProxyPlan has a warning",
        published(
            stage,
            rig,
            ["pp", "node-1", "/spec/warnings"],
            &["Node node-1"],
        ),
    );
    checks.check("an event of the ProxyConfig names node and pod", {
        let event = stage.waits.until(
            "the event OutsideRanges",
            PUBLISHED,
            Duration::from_millis(500),
            || {
                let selected = "--field-selector=reason=OutsideRanges";
                let only = "jsonpath={.items[*].message}";
                let text = rig
                    .plane
                    .kubectl(&["get", "events", "-A", selected, "-o", only])?;
                Ok((!text.is_empty()).then_some(text))
            },
            || "there is none".to_owned(),
        );
        event.and_then(|text| {
            let named = text.contains("node node-1: ") && text.contains("10.99.0.9");
            ensure!(named, "it says {text}");
            Ok(())
        })
    });
    rig.plane.kubectl(&["delete", "endpointslice", "stray"])?;
    checks.check(
        "it is True again when the pod is gone",
        in_ranges(stage, rig, "True"),
    );
    Ok(())
}

fn in_ranges(stage: &Stage, rig: &Rig<'_>, wanted: &str) -> Result<()> {
    let only = "jsonpath={.status.conditions[?(@.type==\"PodsInRanges\")].status}";
    let get = || {
        rig.plane
            .kubectl(&["get", "proxyconfig", "default", "-o", only])
    };
    stage.waits.until(
        "the condition PodsInRanges",
        PUBLISHED,
        Duration::from_millis(500),
        || Ok((get()? == wanted).then_some(())),
        || format!("it is {:?}", get()),
    )
}

/// Waits until the warnings of an object (kind, name, path) are about exactly these objects.
fn published(stage: &Stage, rig: &Rig<'_>, of: [&str; 3], wanted: &[&str]) -> Result<()> {
    stage.waits.until(
        "the warnings to be published",
        PUBLISHED,
        Duration::from_millis(500),
        || Ok((warned(rig, of)? == wanted).then_some(())),
        || format!("there are {:?}", warned(rig, of)),
    )
}

/// The objects of the warnings of an object.
fn warned(rig: &Rig<'_>, [kind, name, path]: [&str; 3]) -> Result<Vec<String>> {
    let text = rig
        .plane
        .kubectl(&["get", kind, name, "--ignore-not-found", "-o", "json"])?;
    let object: Value = serde_json::from_str(&text).unwrap_or_default();
    let warnings = object.pointer(path).and_then(Value::as_array);
    let objects = warnings
        .into_iter()
        .flatten()
        .filter_map(|warning| warning["object"].as_str());
    Ok(objects.map(str::to_owned).collect())
}

fn serves(rig: &Rig<'_>) -> Result<()> {
    let plan = serde_json::to_value(rig.agents()?.plan("node-1"))?;
    let services = plan["services"].as_array().into_iter().flatten();
    let byhand: Vec<_> = services
        .filter(|service| service["name"] == "byhand")
        .collect();
    let address = byhand
        .first()
        .and_then(|s| s.pointer("/ports/0/internal/endpoints/0/address"));
    ensure!(
        address == Some(&"10.244.1.77".into()),
        "the plan has {byhand:?}"
    );
    Ok(())
}
