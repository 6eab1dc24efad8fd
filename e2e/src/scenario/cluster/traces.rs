//! One trace for each change in Jaeger, also when a change is coalesced or fails, or when Jaeger is unavailable.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Error, Result, ensure};

use super::rig::Rig;
use crate::checks::Checks;
use crate::control_plane::Options;
use crate::harness::{Environment, run_parts};
use crate::jaeger::{self, Jaeger, Ports, Trace};
use crate::light_agents::FAILURE;
use crate::scenario::Scenario;
use crate::stage::Stage;
use crate::traffic::http;

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "traces",
    shows: "a change as one trace in Jaeger: from its trigger to every node, coalesced, slow, failed",
    run,
};

/// Until a change is in Jaeger, on hardware: pods start, slices are written, nodes answer.
const TRACED: Duration = Duration::from_secs(30);
/// How long to wait before the absence of something is certain, on hardware.
const SETTLES: Duration = Duration::from_secs(3);
/// Only this format has exemplars.
const OPENMETRICS: &str = "application/openmetrics-text";
const NODES: [&str; 2] = ["node-1", "node-2"];

const CLUSTER: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  clusterIP: 10.96.0.80
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, labels: {app: web}}
spec: {nodeName: node-1, containers: [{name: web, image: none}]}
";

/// Everything that runs.
struct Lab<'a> {
    rig: Rig<'a>,
    jaeger: Option<Jaeger>,
    ports: Ports,
    admin: SocketAddr,
}

impl Environment for Lab<'_> {
    fn check_running(&self) -> Result<()> {
        self.rig.check_running()
    }

    fn with_logs(&self, error: Error) -> Error {
        self.rig.with_logs(error)
    }
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let rig = Rig::start(stage, Options::default(), 2, 50)?;
    let [otlp, query] = rig.plane.free_ports()?;
    let ports = Ports { otlp, query };
    let admin = loop {
        let [port, _] = rig.plane.free_ports()?;
        if port != otlp && port != query {
            break (Ipv4Addr::LOCALHOST, port).into();
        }
    };
    let mut lab = Lab {
        rig,
        jaeger: None,
        ports,
        admin,
    };
    lab.start_jaeger()?;
    lab.start_controller("1")?;
    lab.rig.start_agents(2)?;
    lab.rig.wait_first_plans()?;
    lab.rig
        .plane
        .kubectl_with_input(&["apply", "-f", "-"], CLUSTER)?;
    run_parts(
        &mut lab,
        checks,
        &[
            ("one change", one_change),
            ("coalesced changes", coalesced),
            ("without Jaeger", away),
            ("a share of 0", sampled),
        ],
    )
}

impl Lab<'_> {
    fn start_jaeger(&mut self) -> Result<()> {
        let log = self.rig.file("jaeger.log");
        self.jaeger = Some(Jaeger::start(self.rig.stage.waits, self.ports, &log)?);
        Ok(())
    }

    fn start_controller(&mut self, share: &str) -> Result<()> {
        let (traces, admin) = (
            format!("http://127.0.0.1:{}", self.ports.otlp),
            self.admin.to_string(),
        );
        self.rig.start_controller_also(&[
            "--admin",
            &admin,
            "--traces",
            &traces,
            "--traces-share",
            share,
            "--traces-slow",
            "1h",
        ])
    }

    /// Makes a pod of the Service on a node.
    fn pod(&self, name: &str, node: &str) -> Result<()> {
        let pod = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: web}}}}, \
             spec: {{nodeName: {node}, containers: [{{name: web, image: none}}]}}}}"
        );
        self.rig
            .plane
            .kubectl_with_input(&["apply", "-f", "-"], &pod)?;
        Ok(())
    }

    /// Changes the scheduler annotation of the Service.
    fn annotate(&self, scheduler: &str) -> Result<()> {
        let annotation = format!("proxy.portolan.dev/scheduler={scheduler}");
        let words = ["annotate", "--overwrite", "service", "web", &annotation];
        self.rig.plane.kubectl(&words)?;
        Ok(())
    }

    fn traces(&self) -> Result<Vec<Trace>> {
        self.jaeger
            .as_ref()
            .context("Jaeger does not run")?
            .query()
            .traces()
    }

    /// IDs of the traces that Jaeger has now.
    fn known(&self) -> Result<BTreeSet<String>> {
        let ids = self.traces()?.into_iter().map(|trace| trace.id);
        Ok(ids.collect())
    }

    /// A trace that Jaeger did not have before.
    fn new_trace(
        &self,
        before: &BTreeSet<String>,
        what: &str,
        is_it: impl Fn(&Trace) -> bool,
    ) -> Result<Trace> {
        self.rig.eventually(what, TRACED, || {
            let all = self.traces()?;
            let new = all.iter().filter(|trace| !before.contains(&trace.id));
            let found = new.clone().find(|trace| is_it(trace)).cloned();
            found.with_context(|| format!("{:?}", new.collect::<Vec<_>>()))
        })
    }

    fn metric(&self, series: &str) -> Result<f64> {
        let page = http::get(self.admin, "/metrics", Duration::from_secs(5))?;
        let line = page.body.lines().find(|line| line.starts_with(series));
        let value = line.and_then(|line| line.split(' ').nth(1)?.parse().ok());
        value.with_context(|| format!("no {series} in {}", page.body))
    }
}

fn whole(trace: &Trace) -> bool {
    trace.named("apply").count() == NODES.len()
}

/// A pod becomes ready: the trace of its change reaches both nodes.
fn one_change(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let before = lab.known()?;
    lab.pod("web-2", "node-2")?;
    let is_it = |trace: &Trace| {
        trace.changed().contains("EndpointSlice default/web")
            && trace.named("watch").count() == 1
            && whole(trace)
    };
    let trace = lab.new_trace(&before, "the trace of a pod that becomes ready", is_it)?;
    let console = lab.rig.stage.console;
    jaeger::lines(&trace)
        .iter()
        .for_each(|line| console.line(line));
    checks.check("every span lies within its parent", trace.check_shape());
    checks.check(
        "from the trigger on: watched, planned, encoded, sent, applied (S-187)",
        trace.check_change(&NODES),
    );
    let said = lab.rig.controller_said()?;
    let names = said.contains(&format!("trace_id={}", trace.id));
    checks.require("the logs of the controller name the trace", names, &said);
    let page = http::get_as(lab.admin, "/metrics", OPENMETRICS, Duration::from_secs(5))?;
    let exemplar = page.body.lines().any(|line| {
        line.starts_with("portolan_controller_change_duration_seconds_bucket")
            && line.contains("# {trace_id=\"")
    });
    checks.require(
        "a histogram has an exemplar with the trace",
        exemplar,
        &page.body,
    );
    Ok(())
}

/// Two changes while an agent applies a third: they are sent as one, and their traces are linked.
fn coalesced(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let before = lab.known()?;
    lab.rig.agents()?.hold("node-1", true);
    for scheduler in ["wrr", "lc", "rr"] {
        lab.annotate(scheduler)?;
        // Each is planned by itself.
        std::thread::sleep(Duration::from_millis(500));
    }
    lab.rig.agents()?.hold("node-1", false);
    let linked = |trace: &Trace| trace.named("deliver").any(|span| span.links().count() > 0);
    let is_holder = |trace: &Trace| linked(trace) && whole(trace);
    let is_other = |trace: &Trace| linked(trace) && !whole(trace);
    let holder = lab.new_trace(&before, "the trace with the work of two changes", is_holder)?;
    let other = lab.new_trace(&before, "the trace that it is linked with", is_other)?;
    checks.check(
        "a coalesced change is linked with the other one, both ways",
        holder.check_took_along(&other, "node-1"),
    );
    let shapes = holder.check_shape().and_then(|()| other.check_shape());
    checks.check("and both traces are complete", shapes);
    Ok(())
}

/// Jaeger is unavailable: everything else works.
fn away(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let lost = "portolan_controller_trace_exports_total{result=\"failed\"}";
    let before = lab.metric(lost)?;
    lab.jaeger = None;
    lab.annotate("wrr")?;
    let agents = lab.rig.agents()?;
    let reached = lab.rig.eventually("all nodes to have it", TRACED, || {
        for node in NODES {
            let plan = serde_json::to_string(&agents.plan(node))?;
            ensure!(plan.contains("\"scheduler\":\"wrr\""), "{node} has {plan}");
        }
        Ok(())
    });
    checks.check("without Jaeger changes reach all nodes", reached);
    let counted = lab.rig.eventually("a lost trace", TRACED, || {
        let count = lab.metric(lost)?;
        ensure!(count > before, "{count}");
        Ok(())
    });
    checks.check("lost traces are counted", counted);
    let said = lab.rig.controller_said()?;
    let once = said.matches("traces are lost").count() == 1;
    checks.require("and logged once, with what to check", once, &said);
    lab.start_jaeger()?;
    lab.annotate("rr")?;
    let back = lab.new_trace(&BTreeSet::new(), "a trace once Jaeger is back", whole);
    checks.check("Jaeger gets traces again once it is back", back.map(drop));
    Ok(())
}

/// With a share of 0, only slow and failed changes are kept.
fn sampled(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.rig.kill_controller()?;
    lab.start_controller("0")?;
    let kept = |kept: &str| format!("portolan_controller_traces_total{{kept=\"{kept}\"}}");
    let more_than = |series: &str, least: f64| {
        let value = lab.metric(series)?;
        ensure!(value > least, "{series} is {value}");
        Ok(())
    };
    let no = kept("no");
    let rig = &lab.rig;
    rig.eventually("the first plans", TRACED, || more_than(&no, 0.0))?;
    // Agents have to be connected again, or the trace has no node.
    rig.eventually("both agents", TRACED, || {
        more_than("portolan_controller_nodes_in_force", 1.5)
    })?;
    let (known, left_out) = (lab.known()?, lab.metric(&no)?);
    lab.annotate("lc")?;
    rig.eventually("a change to end", TRACED, || more_than(&no, left_out))?;
    std::thread::sleep(SETTLES);
    let now = lab.known()?;
    checks.require(
        "with a share of 0, no ordinary change is kept",
        now == known,
        &format!("{now:?}"),
    );
    lab.rig.agents()?.set_failing("node-2", true);
    lab.annotate("wrr")?;
    let failed = lab.new_trace(&known, "the trace of a change that fails", |_| true)?;
    let root = failed.root()?;
    let says = root.failure() == Some("not in force on 1 of 2 nodes");
    let what = "a change that fails on a node is kept and has the failure";
    checks.require(what, says, &format!("{root:?}"));
    let mut delivered = failed.named("deliver");
    let of_node = delivered.find(|span| span.failure() == Some(FAILURE));
    let node = of_node.and_then(|span| span.node());
    checks.require(
        "with the node and the operation",
        node == Some("node-2"),
        &format!("{:?}", failed.spans),
    );
    lab.rig.agents()?.set_failing("node-2", false);
    Ok(())
}
