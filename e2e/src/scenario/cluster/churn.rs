//! A busy cluster: real controllers create and change hundreds of Services and their pods (in the long form 1,000
//! Services and 4,000 pods), while each program of the control plane and the controller are killed once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::bulk::Bulk;
use super::memory::object;
use super::rig::Rig;
use crate::chance::Chance;
use crate::checks::Checks;
use crate::control_plane::{Options, Part, Reach};
use crate::harness::run_parts;
use crate::scenario::Scenario;
use crate::stage::Stage;
use crate::waits;

pub(in crate::scenario) const SCENARIO: Scenario = Scenario {
    name: "churn",
    shows: "Services and pods of real controllers change, programs are killed: plans equal those from scratch",
    run,
};

/// Pods of each Service in the beginning.
const PODS_A_SERVICE: usize = 4;
const NODES: u8 = 20;
/// Nodes with an agent; the plans of the others are only published.
const AGENTS: u8 = 8;
/// Between two changes.
const EVERY: Duration = Duration::from_millis(50);
/// Until all pods run, and until plans are correct again after the churn, on hardware.
const FILLED: Duration = Duration::from_secs(180);
const EQUAL: Duration = Duration::from_secs(90);
/// Programs that are killed and restarted, and after which share of the time, in per cent.
const KILLS: [(u32, Killed); 3] = [
    (20, Killed::Part(Part::ApiServer)),
    (45, Killed::Controller),
    (70, Killed::Part(Part::Etcd)),
];

/// Size of the cluster and duration of the churn.
#[derive(Debug, Clone, Copy)]
struct Form {
    services: usize,
    lasts: Duration,
    /// Fewer changes than this prove nothing.
    changes: u32,
}

impl Form {
    fn of(stage: &Stage) -> Self {
        let (services, seconds, changes) = match stage.long {
            true => (1000, 120, 500),
            false => (300, 40, 150),
        };
        Self {
            services,
            lasts: Duration::from_secs(seconds),
            changes,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Killed {
    Part(Part),
    Controller,
}

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let manager = [
        "--concurrent-deployment-syncs=20",
        "--concurrent-replicaset-syncs=20",
    ];
    let options = Options {
        controller_manager: manager.map(String::from).to_vec(),
        ..Options::default()
    };
    let mut rig = Rig::start(stage, options, NODES, 2000)?;
    rig.start_controller()?;
    rig.start_agents(AGENTS)?;
    run_parts(&mut rig, checks, &[("churn", churned)])
}

fn churned(rig: &mut Rig<'_>, checks: &mut Checks) -> Result<()> {
    let stage = rig.stage;
    let bulk = Bulk::new(&rig.plane.kubeconfig(Reach::Here))?;
    let start = Instant::now();
    let form = Form::of(stage);
    let (services, pods) = (form.services, form.services * PODS_A_SERVICE);
    bulk.create("default", (0..services).map(service))?;
    bulk.create("default", (0..services).map(deployment))?;
    rig.kubelet.wait_running(stage.waits, pods, FILLED)?;
    let seconds = start.elapsed().as_secs_f64();
    stage.console.line(&format!(
        "{services} Services and {pods} pods made by real controllers in {seconds:.0} s"
    ));
    let made = churn(rig, &bulk, form)?;
    stage.console.line(&format!("seed {}: {made}", stage.seed));
    checks.passed("churn while API server, controller and etcd are killed once each");
    checks.check(
        "every agent's plan equals one made from scratch of what kubectl prints",
        rig.wait_equal(EQUAL),
    );
    let restarted = made.restarted;
    let restarted = restarted.context("the API server was not restarted")?;
    checks.check(
        "writes of Portolan objects stay within the limit, as counted by the API server",
        writes(rig, restarted),
    );
    watches(rig, checks)
}

/// Default write limit of the ProxyConfig, per second.
const BUDGET: f64 = 50.0;

/// Writes of Portolan objects, counted by the API server since its restart.
fn writes(rig: &Rig<'_>, since: Instant) -> Result<()> {
    let metrics = rig.plane.kubectl(&["get", "--raw", "/metrics"])?;
    let of_ours = metrics.lines().filter(|line| {
        let reads = ["GET", "LIST", "WATCH"].map(|verb| format!("verb=\"{verb}\""));
        line.starts_with("apiserver_request_total{")
            && line.contains("group=\"proxy.portolan.dev\"")
            && !reads.iter().any(|read| line.contains(read))
    });
    let counts = of_ours.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    let (count, seconds) = (counts.sum::<f64>(), since.elapsed().as_secs_f64());
    let rate = count / seconds;
    rig.stage.console.line(&format!(
        "{count} writes of our objects in {seconds:.0} s: {rate:.1} a second"
    ));
    ensure!(count > 0.0, "nothing was published");
    ensure!(rate <= BUDGET, "the limit is {BUDGET} a second");
    Ok(())
}

/// Number of changes by kind, and of those that failed while a server was down.
#[derive(Debug, Default)]
struct Made {
    changes: BTreeMap<&'static str, u32>,
    failed: u32,
    /// Restart time of the API server, from which its counters count.
    restarted: Option<Instant>,
}

impl std::fmt::Display for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (what, count) in &self.changes {
            write!(f, "{count} x {what}, ")?;
        }
        write!(f, "{} refused while a server was away", self.failed)
    }
}

fn churn(rig: &mut Rig<'_>, bulk: &Bulk, form: Form) -> Result<Made> {
    let mut chance = Chance::from_seed(rig.stage.seed);
    let start = Instant::now();
    let mut made = Made::default();
    let ways: &[_] = match rig.prefers_nodes() {
        true => &["PreferSameZone", "PreferSameNode"],
        false => &["PreferClose"],
    };
    let mut kills = KILLS.into_iter().peekable();
    let mut next = start;
    while start.elapsed() < form.lasts {
        if let Some((_, killed)) =
            kills.next_if(|(at, _)| start.elapsed() >= form.lasts * *at / 100)
        {
            let restarted = kill(rig, killed)?;
            if matches!(killed, Killed::Part(Part::ApiServer)) {
                made.restarted = Some(restarted);
            }
        }
        let change = Change::draw(&mut chance, form.services, ways);
        match bulk.run(async |client| change.make(client).await) {
            Ok(()) => *made.changes.entry(change.what()).or_default() += 1,
            Err(_) => made.failed += 1,
        }
        next += EVERY;
        waits::sleep_until(next)?;
    }
    ensure!(kills.peek().is_none(), "not everything was killed");
    let all: u32 = made.changes.values().sum();
    ensure!(all > form.changes, "only {all} changes were made: {made}");
    Ok(made)
}

/// Kills a program, and starts it again. Returns the time in between: it may be used before its start is noticed.
fn kill(rig: &mut Rig<'_>, killed: Killed) -> Result<Instant> {
    match killed {
        Killed::Part(part) => rig.plane.kill(part)?,
        Killed::Controller => rig.kill_controller()?,
    }
    let restarted = Instant::now();
    match killed {
        Killed::Part(part) => rig.plane.start_part(part)?,
        Killed::Controller => rig.start_controller()?,
    }
    Ok(restarted)
}

/// One change of the cluster.
#[derive(Debug, Clone)]
enum Change {
    Scale(usize, u64),
    Restart(usize, u64),
    DeletePods(usize),
    Recreate(usize),
    Prefer(usize, Option<&'static str>),
    InternalPolicy(usize, &'static str),
    Relabel(u64, u64),
}

impl Change {
    fn draw(chance: &mut Chance, services: usize, ways: &[&'static str]) -> Self {
        let mut below = |limit: u64| chance.number() % limit;
        let app = usize::try_from(below(services as u64)).unwrap_or(0);
        match below(100) {
            0..40 => Self::Scale(app, 2 + below(5)),
            40..50 => Self::Restart(app, below(1 << 32)),
            50..60 => Self::DeletePods(app),
            60..70 => Self::Recreate(app),
            70..85 => {
                // Or none.
                let way = usize::try_from(below(ways.len() as u64 + 1)).unwrap_or(0);
                Self::Prefer(app, ways.get(way).copied())
            }
            85..97 => Self::InternalPolicy(app, if below(2) == 0 { "Local" } else { "Cluster" }),
            _ => Self::Relabel(1 + below(NODES.into()), 1 + below(3)),
        }
    }

    fn what(&self) -> &'static str {
        match self {
            Self::Scale(..) => "scale",
            Self::Restart(..) => "rolling restart",
            Self::DeletePods(..) => "pods deleted",
            Self::Recreate(..) => "Service deleted and made again",
            Self::Prefer(..) => "traffic distribution",
            Self::InternalPolicy(..) => "internal policy",
            Self::Relabel(..) => "node moved to another zone",
        }
    }

    async fn make(&self, client: Client) -> Result<()> {
        let services: Api<Service> = Api::default_namespaced(client.clone());
        let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
        let merge = |patch: Value| Patch::Merge(patch);
        let params = PatchParams::default();
        match self {
            Self::Scale(app, replicas) => {
                let patch = merge(json!({"spec": {"replicas": replicas}}));
                drop(deployments.patch(&name(*app), &params, &patch).await?);
            }
            Self::Restart(app, mark) => {
                let annotations = json!({"restarted": mark.to_string()});
                let patch = merge(
                    json!({"spec": {"template": {"metadata": {"annotations": annotations}}}}),
                );
                drop(deployments.patch(&name(*app), &params, &patch).await?);
            }
            Self::DeletePods(app) => {
                let pods: Api<Pod> = Api::default_namespaced(client);
                let of_app =
                    kube::api::ListParams::default().labels(&format!("app={}", name(*app)));
                drop(
                    pods.delete_collection(&DeleteParams::default(), &of_app)
                        .await?,
                );
            }
            Self::Recreate(app) => {
                drop(services.delete(&name(*app), &DeleteParams::default()).await);
                drop(
                    services
                        .create(&PostParams::default(), &service(*app))
                        .await?,
                );
            }
            Self::Prefer(app, way) => {
                let patch = merge(json!({"spec": {"trafficDistribution": way}}));
                drop(services.patch(&name(*app), &params, &patch).await?);
            }
            Self::InternalPolicy(app, policy) => {
                let patch = merge(json!({"spec": {"internalTrafficPolicy": policy}}));
                drop(services.patch(&name(*app), &params, &patch).await?);
            }
            Self::Relabel(node, zone) => {
                let nodes: Api<Node> = Api::all(client);
                let labels = json!({"topology.kubernetes.io/zone": format!("zone-{zone}")});
                let patch = merge(json!({"metadata": {"labels": labels}}));
                drop(
                    nodes
                        .patch(&format!("node-{node}"), &params, &patch)
                        .await?,
                );
            }
        }
        Ok(())
    }
}

/// At most three watches of each kind: one, plus those of killed servers without an audit entry.
const MOST_WATCHES: usize = 3;

fn watches(rig: &Rig<'_>, checks: &mut Checks) -> Result<()> {
    let audit = rig.audit()?;
    let watches = audit.most_watches();
    // The planner watches ProxyConfigs, and so do the tasks that write their status.
    let watchers = |kind: &str| if kind == "proxyconfigs" { 2 } else { 1 };
    let few = |(kind, most): (&String, &usize)| *most <= MOST_WATCHES * watchers(kind);
    let within = watches.iter().all(few) && watches.len() >= 5;
    let what = format!("at most {MOST_WATCHES} watches of each kind by each watcher: {watches:?}");
    checks.require(&what, within, "too many, or none seen");
    checks.check(
        "the controller requests nothing that RBAC does not allow",
        audit.nothing_forbidden(),
    );
    Ok(())
}

fn name(app: usize) -> String {
    format!("app-{app}")
}

fn service(app: usize) -> Service {
    object(json!({
        "metadata": {"name": name(app)},
        "spec": {
            "selector": {"app": name(app)},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
        },
    }))
}

fn deployment(app: usize) -> Deployment {
    let labels = json!({"app": name(app)});
    object(json!({
        "metadata": {"name": name(app)},
        "spec": {
            "replicas": PODS_A_SERVICE,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": "none"}]},
            },
        },
    }))
}
