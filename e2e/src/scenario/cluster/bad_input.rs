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
    let mut rig = Rig::start(
        stage,
        Options::default(),
        &Size {
            nodes: 1,
            pods_a_node: 1,
        },
    )?;
    rig.start_controller()?;
    rig.start_agents(1)?;
    rig.wait_first_plans()?;
    rig.plane.apply(&cluster())?;
    let wanted = ["Service default/longname", "Service default/v4only"];
    let published = stage.waits.until(
        "the warnings in the ProxyConfig",
        PUBLISHED,
        Duration::from_millis(500),
        || {
            Ok(
                (warned(&rig, "proxyconfig", "default", ".status.warnings")? == wanted)
                    .then_some(()),
            )
        },
        || {
            format!(
                "{:?}",
                warned(&rig, "proxyconfig", "default", ".status.warnings")
            )
        },
    );
    checks.check(
        "one warning about each Service in the ProxyConfig's status, none about the rest",
        published,
    );
    let published = stage.waits.until(
        "the warning in the Node's ProxyPlan",
        PUBLISHED,
        Duration::from_millis(500),
        || Ok((warned(&rig, "pp", "nowhere", ".spec.warnings")? == ["Node nowhere"]).then_some(())),
        || format!("{:?}", warned(&rig, "pp", "nowhere", ".spec.warnings")),
    );
    checks.check(
        "one warning about the Node without addresses, in its ProxyPlan",
        published,
    );
    // Touching the objects says nothing again.
    for object in [
        "service/v4only",
        "service/longname",
        "node/nowhere",
        "service/byhand",
    ] {
        rig.plane.kubectl(&["annotate", object, "touched=yes"])?;
    }
    let touched = "{.metadata.annotations.touched}";
    let path = format!("jsonpath={touched}");
    rig.plane
        .kubectl(&["get", "node", "nowhere", "-o", &path])?;
    rig.wait_equal(PUBLISHED)?;
    let said = rig.controller_said()?;
    for object in [
        "Service default/v4only",
        "EndpointSlice default/v4only-six",
        "Service default/longname",
        "Node nowhere",
        "Service default/byhand",
        "EndpointSlice default/byhand-1",
    ] {
        let lines: Vec<_> = said
            .lines()
            .filter(|line| line.contains(&format!("{object}: ")))
            .collect();
        let due = usize::from(wanted.contains(&object) || object == "Node nowhere");
        let logged = if lines.len() == due {
            Ok(())
        } else {
            Err(anyhow::anyhow!("{lines:#?}"))
        };
        checks.check(&format!("{object}: {due} line in the log"), logged);
    }
    checks.check("endpoints without conditions serve", serves(&rig));
    rig.check_running()
}

/// The objects of the warnings of an object.
fn warned(rig: &Rig<'_>, kind: &str, name: &str, path: &str) -> Result<Vec<String>> {
    let text = rig
        .plane
        .kubectl(&["get", kind, name, "--ignore-not-found", "-o", "json"])?;
    let object: Value = serde_json::from_str(&text).unwrap_or_default();
    let warnings = object
        .pointer(&path.replace('.', "/"))
        .and_then(Value::as_array);
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
