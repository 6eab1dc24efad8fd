//! The whole cluster: control plane, nodes, the service proxy and DNS.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::names;
use super::network::{self, CONTROL_PLANE, NAMESPACE, Network};
use super::node::Node;
use super::node_files::{self, Common, FLANNEL, PODS};
use super::{Choice, Kit};
use crate::control_plane::{ControlPlane, ForNodes, Options, Reach};
use crate::logs;
use crate::program::{Program, Running};
use crate::stage::Stage;
use crate::work_folder::WorkFolder;

/// From power-on to Ready; measured: 25 s.
const READY: Duration = Duration::from_secs(180);
/// The image that does most of what tests need.
pub(super) const AGNHOST: &str = "/e2e-test-images/agnhost:";
/// Until a namespace has its account.
const ACCOUNT: Duration = Duration::from_secs(60);
/// Lines of each log in errors.
const LINES_SHOWN: usize = 12;
/// The zones of nodes, in turn.
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// A cluster that runs; dropping it ends everything.
#[derive(Debug)]
pub(super) struct Cluster {
    // The order matters: what uses something ends before it.
    nodes: Vec<Node>,
    /// The nameserver outside of the cluster.
    outside: Running,
    scheduler: Running,
    pub(super) plane: ControlPlane,
    /// Where the chart is.
    pub(super) chart: PathBuf,
    /// Where logs are.
    pub(super) folder: PathBuf,
    _work: Option<WorkFolder>,
    _network: Network,
}

impl Cluster {
    /// Stands it up, and waits until its nodes are Ready, its service proxy runs and its DNS serves.
    pub(super) fn start(stage: &Stage, kit: &Kit, choice: &Choice) -> Result<Self> {
        let start = Instant::now();
        let cluster = Self::without_portolan(stage, kit, choice)?;
        let installed = choice.proxy.install(stage, &cluster);
        installed.map_err(|error| cluster.with_logs(error))?;
        let say = |text: &str| {
            let seconds = start.elapsed().as_secs();
            stage.console.line(&format!("{seconds:>4} s  {text}"));
        };
        say(&format!("{} serves Services", choice.proxy.title()));
        names::start(stage, &cluster).map_err(|error| cluster.with_logs(error))?;
        say("the cluster's DNS serves");
        Ok(cluster)
    }

    /// Stands it up without DNS, and waits until its nodes are Ready. kube-proxy starts with them, if it was chosen.
    pub(super) fn without_portolan(stage: &Stage, kit: &Kit, choice: &Choice) -> Result<Self> {
        let start = Instant::now();
        let say = |text: &str| {
            let seconds = start.elapsed().as_secs();
            stage.console.line(&format!("{seconds:>4} s  {text}"));
        };
        let (folder, work) = match &choice.logs {
            Some(folder) => (folder.clone(), None),
            None => {
                let work = WorkFolder::private()?;
                (work.path.clone(), Some(work))
            }
        };
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        let network = Network::enter(choice.nodes)?;
        let plane = ControlPlane::start(stage.waits, options(choice.nodes))?;
        say("the control plane serves");
        let scheduler = plane.beside(Program::KubeScheduler, &["--leader-elect=false"])?;
        let outside = names::serve_outside(&folder)?;
        plane.apply(&objects(choice.nodes)?)?;
        let pause = image("/pause:")?;
        let common = Common {
            nodes: choice.nodes,
            proxy: choice.proxy,
            network: choice.network,
            server: format!("https://{CONTROL_PLANE}:{}", plane.port()),
            authority: plane.authority_pem(),
            pause: &pause,
        };
        let start_node = |number| Node::start(number, &common, kit, &folder);
        let nodes = (1..=choice.nodes).map(start_node).collect::<Result<_>>()?;
        let cluster = Self {
            nodes,
            outside,
            scheduler,
            plane,
            chart: kit.chart.clone(),
            folder,
            _work: work,
            _network: network,
        };
        cluster
            .wait_ready(stage)
            .map_err(|error| cluster.with_logs(error))?;
        say("the nodes are Ready");
        Ok(cluster)
    }

    /// A namespace whose pods are admitted: that takes until it has its account.
    pub(super) fn make_namespace(&self, stage: &Stage, name: &str) -> Result<()> {
        self.plane.kubectl(&["create", "namespace", name])?;
        stage
            .waits
            .eventually("the account of a namespace", ACCOUNT, || {
                self.plane
                    .kubectl(&["get", "serviceaccount", "default", "-n", name])
                    .map(drop)
            })
    }

    /// Waits until all pods of a namespace are Ready.
    pub(super) fn wait_for_pods(
        &self,
        stage: &Stage,
        namespace: &str,
        limit: Duration,
    ) -> Result<()> {
        let limit = format!("--timeout={}s", stage.waits.limit(limit).as_secs());
        let words = [
            "wait",
            "pod",
            "--all",
            "-n",
            namespace,
            "--for=condition=Ready",
            &limit,
        ];
        self.plane.kubectl(&words).map(drop)
    }

    pub(super) fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.name.as_str())
    }

    /// How people reach it.
    pub(super) fn announce(&self, stage: &Stage) {
        let kubectl = Program::Kubectl.path().unwrap_or_default();
        let config = self.plane.kubeconfig(Reach::Here);
        for line in [
            format!(
                "ip netns exec {NAMESPACE} {} --kubeconfig {} get nodes",
                kubectl.display(),
                config.display()
            ),
            format!("# Logs: {}", self.folder.display()),
            "# Ctrl-C or `cargo lab real down` ends it.".to_owned(),
        ] {
            stage.console.line(&line);
        }
    }

    /// Whether every part still runs and no kernel has fallen over.
    pub(super) fn check_running(&self) -> Result<()> {
        self.plane.check_running()?;
        let nodes = self.nodes.iter().map(|node| &node.running);
        for running in nodes.chain([&self.outside, &self.scheduler]) {
            if let Some(status) = running.ended()? {
                bail!("{} ended with {status}", running.line());
            }
        }
        for node in &self.nodes {
            let said = node.console();
            let panic = said.lines().find(|line| line.contains("Kernel panic"));
            ensure!(
                panic.is_none(),
                "{}: {}",
                node.name,
                panic.unwrap_or_default()
            );
        }
        Ok(())
    }

    /// An error with the last log lines of each part.
    pub(super) fn with_logs(&self, error: anyhow::Error) -> anyhow::Error {
        logs::attach(error, || {
            let consoles = self
                .nodes
                .iter()
                .map(|node| logs::tail(&node.name, &node.console(), LINES_SHOWN));
            consoles.collect::<String>() + &self.plane.last_words()
        })
    }

    fn wait_ready(&self, stage: &Stage) -> Result<()> {
        let runs = || self.check_running();
        stage
            .waits
            .eventually_while("all nodes to be Ready", READY, runs, || {
                let nodes: Value =
                    serde_json::from_str(&self.plane.kubectl_line("get nodes -o json")?)?;
                for node in nodes["items"].as_array().into_iter().flatten() {
                    let conditions = node["status"]["conditions"]
                        .as_array()
                        .into_iter()
                        .flatten();
                    let ready = conditions
                        .into_iter()
                        .find(|condition| condition["type"] == "Ready");
                    let is_ready = ready.is_some_and(|ready| ready["status"] == "True");
                    ensure!(is_ready, "node {}: {ready:?}", node["metadata"]["name"]);
                }
                Ok(())
            })
    }
}

fn options(nodes: u8) -> Options {
    let arguments = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
    Options {
        controllers: vec!["*".to_owned()],
        service_ranges: "10.96.0.0/16,fd00:10:96::/112".to_owned(),
        controller_manager: arguments(&[
            "--allocate-node-cidrs=true",
            &format!("--cluster-cidr={PODS}"),
            "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112",
            // A node that is busy with tests is late with its lease.
            "--node-monitor-grace-period=120s",
        ]),
        nodes: Some(ForNodes {
            address: network::control_plane(),
            names: [
                "10.96.0.1",
                "kubernetes.default.svc",
                "kubernetes.default.svc.cluster.local",
            ]
            .map(str::to_owned)
            .into(),
            tokens: node_files::tokens(nodes),
        }),
        ..Options::default()
    }
}

/// Nodes, before their kubelets join, so that their pods' ranges are known; and the permissions of flannel.
fn objects(nodes: u8) -> Result<String> {
    let node = |number: u8| {
        let name = node_files::name(number);
        let pods = network::pods(number);
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/zone": ZONES[usize::from(number - 1) % ZONES.len()],
            }},
            "spec": {"podCIDR": pods[0], "podCIDRs": pods},
        })
    };
    let nodes = (1..=nodes).map(node);
    let items: Vec<Value> = nodes.chain(flannel()).collect();
    Ok(serde_json::to_string(
        &json!({"apiVersion": "v1", "kind": "List", "items": items}),
    )?)
}

/// RBAC permissions of flannel, from its documentation.
fn flannel() -> [Value; 2] {
    let rule = |resource: &str, verbs: &[&str]| json!({"apiGroups": [""], "resources": [resource], "verbs": verbs});
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": FLANNEL},
        "rules": [
            rule("pods", &["get"]),
            rule("nodes", &["get", "list", "watch"]),
            rule("nodes/status", &["patch"]),
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": FLANNEL},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": FLANNEL},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": FLANNEL}],
    });
    [role, binding]
}

/// An image as tests of this version name it, by a part of its name.
pub(super) fn image(name: &str) -> Result<String> {
    let list = Program::E2eTest.run(&["--list-images"])?;
    let found = list.lines().find(|line| line.contains(name));
    let found = found.with_context(|| format!("`e2e.test --list-images` names no image {name}"))?;
    Ok(found.trim().to_owned())
}
