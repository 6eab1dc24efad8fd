//! A tenant writes what the kernels of all nodes refuse, while the operator changes settings in waves: the rollout
//! completes, Services of others converge, and the tenant learns the cause (S-229).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, ensure};
use portolan_agent::kernel::SharedModel;
use portolan_agent::receive::{Address, Addresses, Controllers, Trust};
use portolan_reconcile::{HostAddress, VirtualServerKey};
use serde_json::{Value, json};

use super::replicas::Replicas;
use super::rig::Rig;
use crate::checks::Checks;
use crate::control_plane::{Options, Reach};
use crate::harness::{Environment, run_parts};
use crate::model_agents::ModelAgents;
use crate::program::Program;
use crate::scenario::Scenario;
use crate::stage::Stage;
use crate::waits::sleep_until;

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "tenants",
    shows: "a tenant's Services that nodes refuse, during a rollout: they stop nothing, and the tenant learns the cause",
    run,
};

const NODES: u8 = 6;
/// Until a rollout step is done, on hardware; see the scenario `waves`.
const STEP: Duration = Duration::from_secs(30);
/// Until all waves are complete, on hardware.
const COMPLETE: Duration = Duration::from_secs(90);
/// For how long the tenant changes its Service again and again: longer than the shortest interval of status writes.
const FLIPS: Duration = Duration::from_secs(8);
/// Pause between two such changes.
const PAUSE: Duration = Duration::from_millis(500);

/// The scheduler that the operator rolls out.
const NEW: &str = "lc";
/// A scheduler that no kernel here has.
const MISSING: &str = "lblc";
/// The broadcast address of a network of the nodes, which only their kernels know.
const BROADCAST: [u8; 4] = [10, 244, 1, 255];

const WEB: &str = "TCP 10.96.0.80:80";
const ODD: &str = "TCP 10.96.0.81:80";
const BROKEN: &str = "TCP 10.96.0.82:80";

const ACCESS: &str = include_str!("../../../api/convergence.yaml");

/// The Services of a shop and of a tenant.
const CLUSTER: &str = include_str!("../../../api/tenants.yaml");
/// One more slice of the tenant's Service `broken`, with [`BROADCAST`].
const REFUSED: &str = include_str!("../../../api/tenants-refused.yaml");

/// A controller, and agents on kernels that refuse the tenant's wishes.
struct Lab<'a> {
    agents: ModelAgents,
    replicas: Replicas<'a>,
}

impl Environment for Lab<'_> {
    fn check_running(&self) -> Result<()> {
        self.replicas.check_running()
    }

    fn with_logs(&self, error: Error) -> Error {
        self.replicas.with_logs(error)
    }
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let rig = Rig::start(stage, Options::default(), NODES, 1)?;
    rig.plane.apply(CLUSTER)?;
    rig.plane.apply(ACCESS)?;
    let replicas = Replicas::start(rig, &["a"])?;
    let sockets = replicas.all.iter().map(|replica| replica.socket.clone());
    let sockets = sockets.map(Address::Unix).collect();
    let controllers = Controllers::new(Addresses::Listed(sockets), Trust::Insecure);
    let node = |number: u8| kernel(number).map(|kernel| (format!("node-{number}"), kernel));
    let nodes = (1..=NODES).map(node).collect::<Result<Vec<_>>>()?;
    let mut lab = Lab {
        agents: ModelAgents::start(nodes, &controllers)?,
        replicas,
    };
    run_parts(
        &mut lab,
        checks,
        &[
            ("before", before),
            ("a rollout", rollout),
            ("what others see", others),
            ("what the tenant sees", tenant),
            ("a tenant that changes its mind", flips),
        ],
    )
}

/// The kernel of a node.
fn kernel(number: u8) -> Result<SharedModel> {
    let kernel = SharedModel::default();
    for text in [
        format!("192.168.50.{number}/24"),
        format!("fd00:50::{number:x}/64"),
    ] {
        let address = HostAddress::on("eth0", text.parse()?);
        kernel.lock().state.host.addresses.push(address);
    }
    let mut faults = kernel.faults();
    faults.missing_schedulers.insert(MISSING.into());
    faults.refused_backends.insert(BROADCAST.into());
    drop(faults);
    Ok(kernel)
}

impl Lab<'_> {
    fn kubectl(&self, words: &[&str]) -> Result<String> {
        self.replicas.rig.plane.kubectl(words)
    }

    fn json(&self, words: &[&str]) -> Result<Value> {
        let text = self.kubectl(&[words, &["-o", "json"]].concat())?;
        Ok(serde_json::from_str(&text)?)
    }

    fn rollout(&self) -> Result<Value> {
        let configs = self.json(&["get", "proxyconfig"])?;
        Ok(configs["items"][0]["status"]["rollout"].clone())
    }

    fn until_rollout(
        &self,
        what: &str,
        limit: Duration,
        is: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        self.replicas.eventually(what, limit, || {
            let seen = self.rollout()?;
            ensure!(is(&seen), "{seen}");
            Ok(seen)
        })
    }

    /// Waits until every node serves a virtual server with this scheduler.
    fn until_served(&self, server: &str, scheduler: &str) -> Result<()> {
        let key: VirtualServerKey = server.parse()?;
        self.replicas
            .eventually("every node to serve it", STEP, || {
                for node in self.agents.nodes() {
                    let found = self.agents.serves(node, &key);
                    ensure!(
                        found.as_deref() == Some(scheduler),
                        "{node} serves {server} with {found:?}"
                    );
                }
                Ok(())
            })
    }

    /// Runs `kubectl proxyplan wait` for a Service; returns its exit code and what it prints.
    fn wait(&self, service: &str, seconds: u64) -> Result<(i32, Value)> {
        let replica = self.replicas.all.first().context("no controller")?;
        let pages = replica.pages().context("the controller has no pages")?;
        let url = format!("http://{pages}");
        let token = self.token()?.display().to_string();
        let kubeconfig = self.replicas.rig.plane.kubeconfig(Reach::Here);
        let kubeconfig = kubeconfig.display().to_string();
        let seconds = seconds.to_string();
        let words = [
            "wait",
            "--controller",
            &url,
            "--kubeconfig",
            &kubeconfig,
            "--token-file",
            &token,
            "--service",
            service,
            "--timeout",
            &seconds,
            "-o",
            "json",
        ];
        let ended = Program::ProxyPlan.try_with_input(&words, "")?;
        let code = ended.status.code().context("it was killed")?;
        let verdict = serde_json::from_str(&ended.output)
            .with_context(|| format!("{}{}", ended.output, ended.errors))?;
        Ok((code, verdict))
    }

    fn token(&self) -> Result<PathBuf> {
        let words = ["create", "token", "pipeline", "-n", "portolan"];
        let token = self.kubectl(&words)?;
        let path = self.replicas.rig.file("token-of-pipeline");
        std::fs::write(&path, token.trim())?;
        Ok(path)
    }

    fn converges(&self, service: &str) -> Result<()> {
        let limit = self.replicas.rig.stage.waits.limit(STEP).as_secs();
        let (code, verdict) = self.wait(service, limit)?;
        ensure!(code == 0, "it ended with {code}: {verdict}");
        Ok(())
    }

    fn annotate(&self, scheduler: &str) -> Result<()> {
        let annotation = format!("proxy.portolan.dev/scheduler={scheduler}");
        let words = [
            "annotate",
            "--overwrite",
            "service",
            "odd",
            "-n",
            "tenant",
            &annotation,
        ];
        self.kubectl(&words).map(drop)
    }

    /// The events about Services of the tenant, by reason and name.
    fn events(&self, reason: &str, service: &str) -> Result<Vec<Value>> {
        let list = self.json(&["get", "events.events.k8s.io", "-n", "tenant"])?;
        let all = list["items"].as_array().cloned().unwrap_or_default();
        let of = |event: &Value| {
            event["reason"] == reason
                && event["regarding"]["kind"] == "Service"
                && event["regarding"]["name"] == service
        };
        Ok(all.into_iter().filter(of).collect())
    }

    fn statuses(&self) -> Result<Vec<Value>> {
        let plans = self.json(&["get", "proxyplans"])?;
        let plans = plans["items"].as_array().context("no list")?;
        Ok(plans.iter().map(|plan| plan["status"].clone()).collect())
    }

    fn status_writes(&self) -> Result<usize> {
        let granted = self.replicas.rig.audit()?.granted();
        Ok(granted
            .get("patch proxyplans/status")
            .copied()
            .unwrap_or_default())
    }
}

fn before(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.until_rollout("the first revision", STEP, |seen| {
        seen["currentRevision"] == "default-1"
    })?;
    for server in [WEB, ODD, BROKEN] {
        let what = format!("every node serves {server}");
        checks.check(&what, lab.until_served(server, "rr"));
    }
    lab.replicas
        .rig
        .configure(&json!({"rollout": {"soak": "10m", "maxParallel": 2}}))
}

fn rollout(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let rig = &lab.replicas.rig;
    rig.configure(&json!({"settings": {"scheduler": NEW}}))?;
    // The canary is watched until the soak time becomes shorter, however long the tenant takes.
    lab.until_rollout("the canary", STEP, |seen| seen["phase"] == "Soaking")?;
    lab.annotate(MISSING)?;
    rig.plane.apply(REFUSED)?;
    let seen = lab.rollout()?;
    checks.require(
        "the tenant acts in the middle of a rollout",
        seen["phase"] == "Soaking" && seen["wave"] == "canary",
        &seen.to_string(),
    );
    rig.configure(&json!({"rollout": {"soak": "1s"}}))?;
    let end = lab.until_rollout("the end of the rollout", COMPLETE, |seen| {
        seen["phase"] == "Complete" || seen["phase"] == "RolledBack"
    })?;
    checks.require(
        "the rollout is complete (S-229)",
        end["phase"] == "Complete",
        &end.to_string(),
    );
    Ok(())
}

fn others(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    checks.check(
        "Services of others have the new settings (S-229)",
        lab.until_served(WEB, NEW),
    );
    checks.check(
        "a wait for a Service of another tenant ends (S-229)",
        lab.converges("shop/web"),
    );
    let sound = lab
        .replicas
        .eventually("every node to be healthy", STEP, || {
            let statuses = lab.statuses()?;
            ensure!(statuses.len() == usize::from(NODES), "{statuses:?}");
            for status in &statuses {
                let conditions = status["conditions"].as_array().context("no conditions")?;
                for kind in ["Applied", "Healthy"] {
                    let is_true = |c: &Value| c["type"] == kind && c["status"] == "True";
                    ensure!(conditions.iter().any(is_true), "{status}");
                }
            }
            Ok(())
        });
    checks.check(
        "every node is healthy, with its plan in force (S-229)",
        sound,
    );
    let list = lab.json(&["get", "events.events.k8s.io", "-n", "default"])?;
    let failed = list.to_string().contains("OperationsFailed");
    checks.require("no event blames a node (S-229)", !failed, &list.to_string());
    Ok(())
}

fn tenant(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    checks.check(
        "a Service whose scheduler nodes lack is served with that of the settings (S-229)",
        lab.until_served(ODD, NEW),
    );
    checks.check(
        "and a wait for it ends (S-229)",
        lab.converges("tenant/odd"),
    );
    checks.check(
        "a Service with a refused endpoint is served by the others (S-229)",
        lab.until_served(BROKEN, NEW),
    );
    let (code, verdict) = lab.wait("tenant/broken", 2)?;
    let names = verdict["waiting"].as_array().cloned().unwrap_or_default();
    let cause = |waits: &Value| waits["reason"].to_string().contains("10.244.1.255");
    checks.require(
        "a wait for it does not end, and names the endpoint (S-229)",
        code == 1 && names.len() == usize::from(NODES) && names.iter().all(cause),
        &verdict.to_string(),
    );
    for (reason, service) in [("SchedulerMissing", "odd"), ("EndpointRefused", "broken")] {
        let found = lab.replicas.eventually("the event", STEP, || {
            let events = lab.events(reason, service)?;
            ensure!(events.len() == 1, "{events:?}");
            Ok(())
        });
        let what = format!("one event of all nodes tells the tenant {reason} (S-229)");
        checks.check(&what, found);
    }
    let shown = lab.replicas.eventually("a status with them", STEP, || {
        let statuses = lab.statuses()?;
        let names = |status: &Value, service: &str| {
            let troubles = status["troubles"].as_array();
            let mut troubles = troubles.into_iter().flatten();
            troubles.any(|trouble| trouble["service"] == service)
        };
        let both = |status: &Value| names(status, "tenant/odd") && names(status, "tenant/broken");
        ensure!(statuses.iter().any(both), "{statuses:?}");
        Ok(())
    });
    checks.check("ProxyPlans name both (S-229)", shown);
    Ok(())
}

/// A user of one Service must not cause a write for each node with each change.
fn flips(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.replicas.eventually("the last statuses", STEP, || {
        let target = lab.rollout()?["currentRevision"].clone();
        let statuses = lab.statuses()?;
        let written = |status: &Value| status["settingsRevision"] == target;
        ensure!(statuses.iter().all(written), "{target}: {statuses:?}");
        Ok(())
    })?;
    // A report that came during the last write may cause one more.
    sleep_until(Instant::now() + FLIPS)?;
    let (before, started) = (lab.status_writes()?, Instant::now());
    let mut changes = 0u32;
    while started.elapsed() < FLIPS {
        lab.annotate("rr")?;
        lab.until_served(ODD, "rr")?;
        lab.annotate(MISSING)?;
        lab.until_served(ODD, NEW)?;
        changes += 2;
        sleep_until(Instant::now() + PAUSE)?;
    }
    let after = lab.status_writes()?;
    checks.require(
        "changes of one Service cause no write of a status (S-229)",
        after == before && changes >= 4,
        &format!("{changes} changes, {} writes", after - before),
    );
    let events = lab.events("SchedulerMissing", "odd")?;
    checks.require(
        "and no more events about it than one in five minutes (S-229)",
        events.len() == 1,
        &format!("{events:?}"),
    );
    Ok(())
}
