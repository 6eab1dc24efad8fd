//! Rules of Services with real input: Kubernetes' own controllers write the slices, hints and
//! addresses, and the plans of the nodes have to match a table.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use portolan_plan::{
    ExternalClients, FrontendDocument, FrontendKind, ListDocument, PlanDocument, PortDocument,
};
use serde::Deserialize;
use serde_json::Value;

use super::rig::Rig;
use crate::checks::Checks;
use crate::control_plane::Options;
use crate::harness::Environment as _;
use crate::scenario::Scenario;
use crate::stage::Stage;

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "rules",
    shows: "Services of every type, policies, hints and terminating pods: plans from Kubernetes' \
        own slices",
    run,
};

const STEPS: &str = include_str!("../../../api/rules/steps.yaml");
/// Until the plans say what a step expects, on hardware.
const ARRIVES: Duration = Duration::from_secs(20);
const NODES: u8 = 4;

/// One step of the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// The claim, with its S-numbers.
    step: String,
    /// The minor version of Kubernetes that has first what the step needs.
    since: Option<u32>,
    /// Manifests.
    #[serde(default)]
    apply: String,
    /// Grace period of pods that are deleted from now on, in seconds.
    grace: Option<u64>,
    /// Commands of kubectl, word by word.
    #[serde(default)]
    run: Vec<Vec<String>>,
    /// Expected lines of the plan, by node and Service.
    expect: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let steps: Vec<Step> = serde_saphyr::from_str(STEPS).context("read the table of steps")?;
    let mut rig = Rig::start(stage, Options::default(), NODES, 20)?;
    rig.start_controller()?;
    rig.start_agents(NODES)?;
    rig.wait_first_plans()?;
    let mut pods = Pods::default();
    let (minor, prefers_nodes) = (rig.minor, rig.prefers_nodes());
    for mut step in steps {
        if let Some(since) = step.since.filter(|since| minor < *since) {
            let what = &step.step;
            stage.console.line(&format!(
                "needs Kubernetes 1.{since}, this is 1.{minor}: {what}"
            ));
            continue;
        }
        if !prefers_nodes {
            step.apply = step.apply.replace("PreferSameZone", "PreferClose");
        }
        let done = go(&rig, &step, &mut pods);
        checks.check(&step.step, done.map_err(|error| rig.with_logs(error)));
    }
    checks.check(
        "every agent's plan equals one made from scratch",
        rig.wait_equal(ARRIVES),
    );
    rig.check_running()
}

fn go(rig: &Rig<'_>, step: &Step, pods: &mut Pods) -> Result<()> {
    if let Some(seconds) = step.grace {
        rig.kubelet.set_grace(Duration::from_secs(seconds));
    }
    if !step.apply.is_empty() {
        rig.plane.apply(&step.apply)?;
    }
    for words in &step.run {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        rig.plane.kubectl(&words)?;
    }
    if step.expect.values().all(BTreeMap::is_empty) {
        bail!("the step expects nothing");
    }
    rig.eventually("the plans to say so", ARRIVES, || {
        pods.learn(rig)?;
        says_so(rig, step, pods)
    })
}

/// Fails with the first node and Service whose plan differs.
fn says_so(rig: &Rig<'_>, step: &Step, pods: &Pods) -> Result<()> {
    for (node, services) in &step.expect {
        let plan = rig.agents()?.plan(node);
        let plan = plan.with_context(|| format!("{node} has no plan"))?;
        for (service, expected) in services {
            let said = lines(&plan, service, pods);
            ensure!(
                said == *expected,
                "{node}, {service}: the plan says {said:#?}, expected is {expected:#?}"
            );
        }
    }
    Ok(())
}

/// The lines of a plan about a Service of the namespace `default`.
fn lines(plan: &PlanDocument, service: &str, pods: &Pods) -> Vec<String> {
    let own = |namespace: &str, name: &str| (namespace, name) == ("default", service);
    let mut lines = Vec::new();
    for found in &plan.services {
        if own(&found.namespace, &found.name) {
            for port in &found.ports {
                lines.push(group(port, &port.internal, true, pods));
                let external = port.external.iter();
                lines.extend(external.map(|list| group(port, list, false, pods)));
            }
        }
    }
    for check in &plan.health_checks {
        if own(&check.namespace, &check.name) {
            let counts = check.local_endpoints;
            lines.push(format!("health: {}+{}", counts.ipv4, counts.ipv6));
        }
    }
    lines
}

/// The frontends that share a list, and the list.
fn group(port: &PortDocument, list: &ListDocument, internal: bool, pods: &Pods) -> String {
    let is_internal = |f: &&FrontendDocument| (f.kind == FrontendKind::ClusterIp) == internal;
    let frontends = port.frontends.iter().filter(is_internal);
    let mut frontends: Vec<_> = frontends.map(frontend).collect();
    frontends.sort();
    let external_clients = match list.external_clients {
        ExternalClients::Allow => "",
        ExternalClients::Drop => ", external clients dropped",
    };
    let mut served: Vec<_> = list
        .endpoints
        .iter()
        .map(|e| pods.name(&e.address.to_string()))
        .collect();
    served.sort();
    let served = match served.is_empty() {
        true => "no endpoint".to_owned(),
        false => served.join(" "),
    };
    let mut line = format!(
        "{}: {} | {:?}, {}{external_clients} -> {served}",
        port.name,
        frontends.join(", "),
        list.policy,
        list.scope,
    );
    if let Some(seconds) = port.affinity_seconds {
        line += &format!(" | affinity {seconds}s");
    }
    let guarded = port
        .frontends
        .iter()
        .any(|f| f.kind == FrontendKind::LoadBalancer);
    if !internal && guarded && !port.source_ranges.is_empty() {
        let ranges: Vec<_> = port.source_ranges.iter().map(ToString::to_string).collect();
        line += &format!(" | from {}", ranges.join(" "));
    }
    line
}

/// Addresses that the API server chose are printed as their family.
fn frontend(frontend: &FrontendDocument) -> String {
    let kind = frontend.kind.as_str();
    match (frontend.kind, frontend.address) {
        (FrontendKind::ClusterIp, Some(address)) => {
            format!("{kind} {}", if address.is_ipv4() { "IPv4" } else { "IPv6" })
        }
        (_, Some(address)) => format!("{kind} {address}"),
        (_, None) => format!("{kind} {}", frontend.port),
    }
}

/// Names of pods by address, including pods that are gone.
#[derive(Debug, Default)]
struct Pods(BTreeMap<String, String>);

impl Pods {
    fn learn(&mut self, rig: &Rig<'_>) -> Result<()> {
        let text = rig.plane.kubectl(&["get", "pods", "-o", "json"])?;
        let list: Value = serde_json::from_str(&text).context("read the pods")?;
        for pod in list["items"].as_array().into_iter().flatten() {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let addresses = pod["status"]["podIPs"].as_array().into_iter().flatten();
            for address in addresses.filter_map(|address| address["ip"].as_str()) {
                let family = if address.contains(':') { "/6" } else { "" };
                self.0.insert(address.to_owned(), format!("{name}{family}"));
            }
        }
        Ok(())
    }

    fn name(&self, address: &str) -> String {
        self.0
            .get(address)
            .cloned()
            .unwrap_or_else(|| address.to_owned())
    }
}
