//! Mass loss of endpoints on a real API server: they are held until the loss is approved, also across a change of
//! leader and a restart of controllers; or the loss is only reported.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Error, Result, ensure};
use serde_json::{Value, json};

use super::replicas::{Replica, Replicas};
use super::rig::Rig;
use crate::checks::Checks;
use crate::control_plane::{Options, Reach};
use crate::harness::{Environment, run_parts};
use crate::program::Program;
use crate::scenario::Scenario;
use crate::stage::Stage;
use crate::traffic::http;

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "guard",
    shows: "a mass loss of endpoints on Ready nodes is held until it is approved, or only reported",
    run,
};

const NODES: u8 = 4;
const SLICES: u8 = 3;
const ENDPOINTS: u8 = 100;
const ALL: usize = SLICES as usize * ENDPOINTS as usize;
/// Until the controller reacts, on hardware: it checks every 2 s.
const SOON: Duration = Duration::from_secs(20);
/// Until another controller leads: the lease expires after 15 s.
const TAKEN: Duration = Duration::from_secs(60);
/// How long nothing may happen.
const QUIET: Duration = Duration::from_secs(5);

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: many}
spec:
  clusterIP: 10.96.0.90
  ports: [{name: http, port: 80, targetPort: 8080}]
";

/// The controllers, and the name of the held loss.
struct Lab<'a> {
    replicas: Replicas<'a>,
    loss: String,
}

impl Environment for Lab<'_> {
    fn check_running(&self) -> Result<()> {
        self.replicas.check_running()
    }

    fn with_logs(&self, error: Error) -> Error {
        self.replicas.with_logs(error)
    }
}

/// The stored status, and the number of endpoints of each node.
#[derive(Debug)]
struct Seen {
    guard: Value,
    endpoints: BTreeMap<String, usize>,
}

impl Seen {
    fn all_have(&self, count: usize) -> bool {
        self.endpoints.len() == usize::from(NODES)
            && self.endpoints.values().all(|own| *own == count)
    }

    fn text(&self, field: &str) -> &str {
        self.guard[field].as_str().unwrap_or_default()
    }
}

impl Lab<'_> {
    fn look(&self) -> Result<Seen> {
        let words = ["get", "proxyconfig", "-o", "json"];
        let configs: Value = serde_json::from_str(&self.replicas.rig.plane.kubectl(&words)?)?;
        let agents = self.replicas.rig.agents()?;
        let count = |node: &str| {
            let plan = agents.plan(node)?;
            let ports = plan
                .services
                .iter()
                .filter(|service| &*service.name == "many");
            let ports = ports.flat_map(|service| &service.ports);
            Some((
                node.to_owned(),
                ports.map(|port| port.internal.endpoints.len()).sum(),
            ))
        };
        Ok(Seen {
            guard: configs["items"][0]["status"]["guard"].clone(),
            endpoints: agents.nodes().filter_map(count).collect(),
        })
    }

    fn until(&self, what: &str, limit: Duration, is: impl Fn(&Seen) -> bool) -> Result<Seen> {
        self.replicas.eventually(what, limit, || {
            let seen = self.look()?;
            ensure!(is(&seen), "{seen:?}");
            Ok(seen)
        })
    }

    fn ask(&self, guard: &Value) -> Result<()> {
        self.replicas.rig.configure(&json!({"guard": guard}))
    }

    /// Deletes all EndpointSlices, as a faulty writer would.
    fn empty(&self) -> Result<()> {
        let line = "delete endpointslices -l kubernetes.io/service-name=many --wait=false";
        self.replicas.rig.plane.kubectl_line(line).map(drop)
    }

    fn fill(&self) -> Result<()> {
        let all: String = (1..=SLICES).map(slice).collect();
        self.replicas.rig.plane.apply(&all).map(drop)
    }

    fn approve(&self, id: &str) -> Result<()> {
        let approved = format!("proxy.portolan.dev/approve={id}");
        let line = format!("annotate proxyconfig default --overwrite {approved}");
        self.replicas.rig.plane.kubectl_line(&line).map(drop)
    }

    fn leader(&self) -> Result<usize> {
        let holder = self.replicas.holder()?;
        let mut replicas = self.replicas.all.iter();
        let found = replicas.position(|replica| replica.name == holder);
        found.with_context(|| format!("{holder:?} leads"))
    }

    /// A metric of a controller.
    fn figure(&self, replica: &Replica, name: &str) -> Result<String> {
        let pages = replica.pages().context("it has no pages")?;
        let deadline = self.replicas.rig.stage.waits.limit(SOON);
        let page = http::get(pages, "/metrics", deadline)?;
        let mut lines = page.body.lines();
        let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(found.unwrap_or_default().to_owned())
    }

    fn has_event(&self, reason: &str) -> Result<()> {
        let words = ["get", "events", "-A", "-o", "json"];
        self.replicas.eventually(reason, SOON, || {
            let events: Value = serde_json::from_str(&self.replicas.rig.plane.kubectl(&words)?)?;
            let mut events = events["items"].as_array().into_iter().flatten();
            let is = |event: &Value| {
                event["reason"] == reason && event["involvedObject"]["kind"] == "ProxyConfig"
            };
            ensure!(events.any(is), "there is no such event");
            Ok(())
        })
    }
}

/// A slice of a hundred endpoints, on all nodes in turn.
fn slice(number: u8) -> String {
    let mut text = head(number);
    for host in 1..=ENDPOINTS {
        let node = host % NODES + 1;
        // Writing to a String never fails.
        let _ = writeln!(
            text,
            "- {{addresses: [10.200.{number}.{host}], nodeName: node-{node}, conditions: {{ready: true}}}}"
        );
    }
    text
}

fn head(number: u8) -> String {
    format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: many-{number}, labels: {{kubernetes.io/service-name: many}}}}\naddressType: IPv4\nports: [{{name: http, port: 8080, protocol: TCP}}]\nendpoints:\n"
    )
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let rig = Rig::start(stage, Options::default(), NODES, 1)?;
    rig.plane.apply(SERVICE)?;
    let mut replicas = Replicas::start(rig, &["a", "b"])?;
    replicas.connect(NODES)?;
    replicas.rig.wait_first_plans()?;
    let mut lab = Lab {
        replicas,
        loss: String::new(),
    };
    run_parts(
        &mut lab,
        checks,
        &[
            ("all endpoints", filled),
            ("a loss that is held", held),
            ("changes meanwhile", passes),
            ("controllers that restart", restarted),
            ("a loss that is reported", reported),
            ("rights", rights),
        ],
    )
}

fn filled(lab: &mut Lab<'_>, _: &mut Checks) -> Result<()> {
    lab.fill()?;
    lab.until("all endpoints on all nodes", SOON, |seen| {
        seen.all_have(ALL)
    })?;
    // The leader has to create the ProxyConfig first.
    lab.replicas
        .eventually("a ProxyConfig", TAKEN, || lab.ask(&json!({"mode": "Hold"})))?;
    std::thread::sleep(QUIET);
    Ok(())
}

fn rights(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let nothing = lab.replicas.rig.audit()?.nothing_forbidden();
    checks.check(
        "the controllers need no more permissions than they have",
        nothing,
    );
    Ok(())
}

fn held(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let before = lab.replicas.hashes()?;
    lab.empty()?;
    let seen = lab.until("the loss to be reported", SOON, |seen| {
        seen.text("mode") == "Hold" && seen.guard["lostEndpoints"] == json!(ALL)
    })?;
    std::thread::sleep(QUIET);
    checks.require(
        "all EndpointSlices were deleted, and nodes have their previous plans, with the first \
         removals restored",
        lab.replicas.hashes()? == before,
        &format!("{seen:?}"),
    );
    let message = seen.text("message");
    let ready = seen.guard["readyEndpoints"].as_u64();
    let says = message.contains("approve=") && message.contains(&format!("{ALL} of "));
    checks.require(
        "status.guard has what vanished, until when it is held, and what to do",
        ready >= Some(300) && seen.guard["releaseTime"].is_string() && says,
        &format!("{seen:?}"),
    );
    let table = lab.replicas.rig.plane.kubectl(&["get", "proxyconfig"])?;
    checks.require(
        "kubectl get proxyconfig shows it",
        table.contains("Hold"),
        &table,
    );
    checks.check("an event reports it", lab.has_event("EndpointsVanished"));
    let kubeconfig = lab.replicas.rig.plane.kubeconfig(Reach::Here);
    let kubeconfig = kubeconfig.display().to_string();
    let words = ["show", "node-1", "--kubeconfig", &kubeconfig];
    let noted = Program::ProxyPlan.try_with_input(&words, "")?.errors;
    checks.require(
        "kubectl proxyplan notes that nodes have more endpoints than the objects",
        noted.contains("nodes keep endpoints"),
        &noted,
    );
    for replica in &lab.replicas.all {
        let held = lab.figure(replica, "portolan_controller_endpoints_held")?;
        checks.require(
            &format!("controller {} counts the held endpoints", replica.name),
            held == ALL.to_string(),
            &held,
        );
    }
    lab.loss = seen.text("id").to_owned();
    Ok(())
}

fn passes(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let new =
        head(9) + "- {addresses: [10.200.9.1], nodeName: node-1, conditions: {ready: true}}\n";
    lab.replicas.rig.plane.apply(&new)?;
    let more = lab.until("one more", SOON, |seen| seen.all_have(ALL + 1));
    checks.check("a new endpoint reaches nodes meanwhile", more.map(drop));
    let sick = head(1)
        + "- {addresses: [10.200.1.1], nodeName: node-2, conditions: {ready: false, serving: false}}\n";
    lab.replicas.rig.plane.apply(&sick)?;
    let less = lab.until("one less", SOON, |seen| seen.all_have(ALL));
    checks.check(
        "and so does the change of an endpoint to not ready",
        less.map(drop),
    );
    Ok(())
}

/// Both controllers restart, one after the other: a controller that did not see the loss does not know which
/// endpoints are held.
fn restarted(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let before = lab.replicas.hashes()?;
    lab.replicas.rig.agents()?.begin_history();
    let leader = lab.leader()?;
    for index in [leader, 1 - leader] {
        let replica = &mut lab.replicas.all[index];
        replica.running.take().context("it does not run")?.kill()?;
        replica.start()?;
        let replica = &lab.replicas.all[index];
        let result = lab.replicas.eventually("it to wait", SOON, || {
            let waits = replica
                .said_since_start()
                .contains("before this controller started");
            waits.then_some(()).context("it does not say so")
        });
        checks.check(
            &format!("controller {} restarts and computes no plans", replica.name),
            result,
        );
        let figure = lab.figure(replica, "portolan_controller_waiting_for_guard")?;
        checks.require("and reports that in its metrics", figure == "1", &figure);
        std::thread::sleep(QUIET);
        let seen = lab.look()?;
        let back: Vec<_> = lab
            .replicas
            .rig
            .agents()?
            .went_back()
            .map(str::to_owned)
            .collect();
        checks.require(
            "nodes keep what they have",
            lab.replicas.hashes()? == before && back.is_empty() && seen.text("id") == lab.loss,
            &format!("{back:?} {seen:?}"),
        );
    }
    lab.approve("loss-of-another-time")?;
    std::thread::sleep(QUIET);
    checks.require(
        "the name of another loss approves nothing",
        lab.replicas.hashes()? == before,
        &format!("{:?}", lab.look()?),
    );
    lab.approve(&lab.loss)?;
    let gone = lab.until("the end of it", TAKEN, |seen| {
        seen.all_have(1) && seen.guard.is_null()
    });
    checks.check(
        "once it is approved, the endpoints are removed and status.guard is cleared",
        gone.map(drop),
    );
    checks.check(
        "an event reports that, too",
        lab.has_event("EndpointsReleased"),
    );
    Ok(())
}

fn reported(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.fill()?;
    lab.until("all endpoints again", SOON, |seen| seen.all_have(ALL + 1))?;
    lab.ask(&json!({"mode": "Report", "releaseAfter": "15s"}))?;
    std::thread::sleep(QUIET);
    lab.empty()?;
    lab.until("a report of all", SOON, |seen| {
        seen.text("mode") == "Report" && seen.guard["lostEndpoints"] == json!(ALL + 1)
    })?;
    let gone = lab.until("none on any node", SOON, |seen| seen.all_have(0));
    checks.check(
        "with mode Report they are removed at once, and the loss is reported",
        gone.map(drop),
    );
    let over = lab.until("its end", TAKEN, |seen| seen.guard.is_null());
    checks.check("the report expires", over.map(drop));
    lab.fill()?;
    let back = lab.until("all endpoints again", SOON, |seen| seen.all_have(ALL));
    checks.check("and returning endpoints are served", back.map(drop));
    Ok(())
}
