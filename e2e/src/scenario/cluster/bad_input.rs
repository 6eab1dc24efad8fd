//! Invalid input that the API server accepts: it is reported once, on the right object, and affects
//! nothing else.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::rig::Rig;
use crate::checks::Checks;
use crate::control_plane::Options;
use crate::harness::run_parts;
use crate::scenario::Scenario;
use crate::stage::Stage;

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "bad-input",
    shows: "invalid input that the API server accepts: one warning each, on the right object",
    run,
};

/// Until a warning is published, on hardware.
const PUBLISHED: Duration = Duration::from_secs(75);

/// Services that get a warning.
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
    let mut rig = Rig::start(stage, Options::default(), 1, 1)?;
    rig.start_controller()?;
    rig.start_agents(1)?;
    rig.wait_first_plans()?;
    run_parts(
        &mut rig,
        checks,
        &[
            ("warnings", warnings),
            ("pods outside of ranges", outside_ranges),
        ],
    )
}

fn warnings(rig: &mut Rig<'_>, checks: &mut Checks) -> Result<()> {
    rig.plane.apply(&cluster())?;
    let config = ["proxyconfig", "default", "/status/warnings"];
    checks.check(
        "one warning about each Service in the ProxyConfig's status, none about the rest",
        published(rig, config, &SERVICES),
    );
    checks.check(
        "one warning about the Node without addresses, in its ProxyPlan",
        published(rig, ["pp", "nowhere", "/spec/warnings"], &[NODE]),
    );
    // Touching the objects repeats no warning.
    let objects = [
        "service/v4only",
        "service/longname",
        "node/nowhere",
        "service/byhand",
    ];
    for object in objects {
        rig.plane.kubectl(&["annotate", object, "touched=yes"])?;
    }
    // This later object is in the plans, so the touches were processed.
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
        checks.require(
            &format!("{object}: {due} lines in the log"),
            lines.len() == due,
            &format!("{lines:#?}"),
        );
    }
    checks.check("endpoints without conditions serve", serves(rig));
    Ok(())
}

/// A pod has an address outside the pod ranges of its node (S-70).
fn outside_ranges(rig: &mut Rig<'_>, checks: &mut Checks) -> Result<()> {
    checks.check(
        "the condition PodsInRanges is Unknown while no endpoint names a node",
        in_ranges(rig, "Unknown"),
    );
    rig.plane.apply(&on_node("near", "10.244.1.78"))?;
    checks.check(
        "it is True while pods are in the ranges of their nodes",
        in_ranges(rig, "True"),
    );
    rig.plane.apply(&on_node("stray", "10.99.0.9"))?;
    checks.check("it is False once one is not", in_ranges(rig, "False"));
    checks.check(
        "the node's ProxyPlan has a warning",
        published(rig, ["pp", "node-1", "/spec/warnings"], &["Node node-1"]),
    );
    checks.check("an event of the ProxyConfig names node and pod", {
        let event = rig.eventually("the event OutsideRanges", PUBLISHED, || {
            let selected = "--field-selector=reason=OutsideRanges";
            let only = "jsonpath={.items[*].message}";
            let words = ["get", "events", "-A", selected, "-o", only];
            let text = rig.plane.kubectl(&words)?;
            ensure!(!text.is_empty(), "there is none");
            Ok(text)
        });
        event.and_then(|text| {
            let named = text.contains("on node node-1,") && text.contains("10.99.0.9");
            ensure!(named, "it says {text}");
            Ok(())
        })
    });
    rig.plane.kubectl(&["delete", "endpointslice", "stray"])?;
    checks.check(
        "it is True again when the pod is gone",
        in_ranges(rig, "True"),
    );
    Ok(())
}

fn in_ranges(rig: &Rig<'_>, wanted: &str) -> Result<()> {
    let only = "jsonpath={.status.conditions[?(@.type==\"PodsInRanges\")].status}";
    let words = ["get", "proxyconfig", "default", "-o", only];
    rig.eventually("the condition PodsInRanges", PUBLISHED, || {
        let found = rig.plane.kubectl(&words)?;
        ensure!(found == wanted, "it is {found:?}");
        Ok(())
    })
}

/// Waits until an object (kind, name, path) has warnings about exactly these objects.
fn published(rig: &Rig<'_>, of: [&str; 3], wanted: &[&str]) -> Result<()> {
    rig.eventually("the warnings to be published", PUBLISHED, || {
        let found = warned(rig, of)?;
        ensure!(found == wanted, "there are {found:?}");
        Ok(())
    })
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
