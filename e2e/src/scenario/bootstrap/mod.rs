//! A cluster that starts with Portolan as its only service proxy, on a real API server: pods reach the API server by
//! its cluster IP, so only through their node's agent. Then all controllers move at once, and settings change under
//! traffic.

mod settings;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use super::{Checks, Scenario, Stage};
use crate::control_plane::kubelet::{AddressPool, Kubelet, LabNode};
use crate::harness;
use crate::installation;
use crate::program::Program;
use crate::stage::ApiServer;
use crate::topology::Network;
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::traffic::relay::Relay;
use crate::work_folder::WorkFolder;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "bootstrap",
    shows: "the first node and a joining node start with Portolan alone; controllers move; \
        settings change under traffic",
    run,
};

/// The standard port of the API server.
const PORT: u16 = 6443;
/// The API server's cluster IP.
const CLUSTER_IP: &str = "10.96.0.1:443";
/// Until a node serves a change of its plan, on hardware.
const SERVED: Duration = Duration::from_secs(30);
/// Timeout of a pod's request to the API server.
const PATIENCE: &str = "--request-timeout=5s";

/// The EndpointSlice of the Service `kubernetes`.
const API_ENDPOINTS: &str = "
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kubernetes, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
addressType: IPv4
ports: [{name: https, port: 6443, protocol: TCP}]
endpoints: [{addresses: [ADDRESS], conditions: {ready: true}}]
";
const LATER: &str = "
apiVersion: v1
kind: Service
metadata: {name: later}
spec:
  clusterIP: 10.96.0.30
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
";

/// State of the lab beside its programs; dropping it ends everything.
struct Api {
    // Fields are dropped in this order: dependents first.
    kubelet: Kubelet,
    _relay: Relay,
    server: ApiServer,
    /// The name that the API server's certificate has.
    host: String,
    folder: WorkFolder,
}

type Lab<'a> = harness::Lab<'a, Api>;

fn run(stage: &Stage, checks: &mut Checks) -> Result<()> {
    let api = stage
        .api_server
        .as_ref()
        .context("this scenario needs an API server: run `cargo lab scenarios bootstrap`")?;
    let mut lab = start(harness::Lab::new(stage, Network::Routed)?, api)?;
    lab.run_parts(
        checks,
        &[
            ("the first node", first),
            ("a node that joins", joins),
            ("a Deployment", deploy),
            ("controllers that move", moved),
            ("settings under traffic", settings::run),
        ],
    )
}

/// Places the API server at the address of the first node and installs the CRDs; no agent runs yet.
fn start<'a>(mut lab: harness::Lab<'a>, api: &ApiServer) -> Result<Lab<'a>> {
    let folder = WorkFolder::make()?;
    let server = server(api)?;
    let here: SocketAddr = (Node::A.address(Family::IPv4), PORT).into();
    let relay = Relay::start(lab.topology.node(Node::A)?, here, server)?;
    lab.serve_pods()?;
    let mut pool = AddressPool::new();
    for pod in Pod::all() {
        let addresses = Family::ALL.map(|family| pod.address(family));
        pool.add(pod.node.name(), addresses.to_vec());
    }
    let lab = lab.with(Api {
        kubelet: Kubelet::start(&api.admin, pool)?,
        _relay: relay,
        server: api.clone(),
        host: server.ip().to_string(),
        folder,
    });
    installation::install(|words, input| lab.kubectl(words, input))?;
    let address = Node::A.address(Family::IPv4).to_string();
    lab.kubectl(
        &["apply", "-f", "-"],
        &API_ENDPOINTS.replace("ADDRESS", &address),
    )?;
    Ok(lab)
}

/// Four pods, and a Service with a port on the nodes.
fn deploy(lab: &mut Lab<'_>, _: &mut Checks) -> Result<()> {
    lab.kubectl(&["apply", "-f", "-"], settings::WEB)?;
    let kubelet = &lab.state.kubelet;
    kubelet.wait_running(lab.stage.waits, 4, SERVED)?;
    for resident in CLIENTS {
        lab.wait_answer(resident, settings::web())?;
    }
    Ok(())
}

impl Lab<'_> {
    /// Runs kubectl as administrator, at an address that needs no Service.
    fn kubectl(&self, words: &[&str], input: &str) -> Result<String> {
        let (config, cache) = (
            self.state.server.admin.display().to_string(),
            self.state.folder.path.join("kubectl").display().to_string(),
        );
        let own = ["--kubeconfig", &config, "--cache-dir", &cache];
        Program::Kubectl.run_with_input(&[&own, words].concat(), input)
    }

    /// Asks the API server from a pod, by its cluster IP.
    fn asks(&self, pod: Pod) -> Result<()> {
        let config = self.state.server.admin.display().to_string();
        let cache = self
            .state
            .folder
            .path
            .join(pod.name())
            .display()
            .to_string();
        let server = format!("--server=https://{CLUSTER_IP}");
        let name = format!("--tls-server-name={}", self.state.host);
        let words = [
            "--kubeconfig",
            &config,
            "--cache-dir",
            &cache,
            &server,
            &name,
            PATIENCE,
            "get",
            "--raw=/readyz",
        ];
        let said = self.inside(Resident::Pod(pod), || Program::Kubectl.run(&words))?;
        ensure!(said.trim() == "ok", "it says {said}");
        Ok(())
    }

    fn wait_asks(&self, pod: Pod) -> Result<()> {
        let what = format!("{} to reach the API server by its cluster IP", pod.name());
        self.eventually(&what, SERVED, || self.asks(pod))
            .map_err(|error| self.cluster.with_logs(error))
    }

    fn register(&self, node: Node) -> Result<()> {
        let node = LabNode {
            name: node.name().to_owned(),
            zone: node.zone().to_owned(),
            addresses: Family::ALL.map(|family| node.address(family)).to_vec(),
            pod_ranges: Family::ALL.map(|family| node.pod_range(family)).to_vec(),
        };
        self.state.kubelet.register(&node.object())
    }

    /// Waits until a resident gets an answer.
    fn wait_answer(&self, from: Resident, target: SocketAddr) -> Result<()> {
        let what = format!("{} to be answered at {target}", from.name());
        let answered = || self.answered(from, target).map(drop);
        self.eventually(&what, SERVED, answered)
            .map_err(|error| self.cluster.with_logs(error))
    }
}

/// Pods that are no endpoints, one on each node.
const CLIENTS: [Resident; 2] = [Resident::Pod(Node::A.pod(3)), Resident::Pod(Node::B.pod(3))];

/// Address of the API server in a kubeconfig.
fn server(api: &ApiServer) -> Result<SocketAddr> {
    let config = api.admin.display().to_string();
    let words = ["--kubeconfig", &config, "config", "view", "-o", "json"];
    let view: Value = serde_json::from_str(&Program::Kubectl.run(&words)?)?;
    let url = view["clusters"][0]["cluster"]["server"].as_str();
    let address = url.and_then(|url| url.strip_prefix("https://"));
    let address = address.with_context(|| format!("{url:?} is no address"))?;
    address
        .trim_end_matches('/')
        .parse()
        .with_context(|| format!("{address} is no address"))
}

fn pod(node: Node) -> Result<Pod> {
    Pod::on(node).next().context("the node has no pods")
}

/// The first node: without an agent its pods do not reach the API server by its cluster IP; with
/// one, they do.
fn first(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let pod = pod(Node::A)?;
    lab.register(Node::A)?;
    lab.cluster.move_controllers("first.socket")?;
    let controller = lab.state.server.controller.clone();
    lab.cluster.start_controller_on(&controller, &[])?;
    let unreachable = match lab.asks(pod) {
        Ok(()) => Err(anyhow!("{} reached it without any proxy", pod.name())),
        Err(_) => Ok(()),
    };
    checks.check(
        "without an agent no pod reaches the API server",
        unreachable,
    );
    lab.cluster.start_agent(Node::A)?;
    let reached = lab.wait_asks(pod);
    checks.check(
        "the first node: a pod reaches the API server by its cluster IP, only through Portolan",
        reached,
    );
    Ok(())
}

/// Another one joins.
fn joins(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    let pod = pod(Node::B)?;
    lab.cluster.start_agent(Node::B)?;
    lab.register(Node::B)?;
    checks.check(
        "a node that joins: a pod there reaches it too",
        lab.wait_asks(pod),
    );
    Ok(())
}

/// All controllers end at once and start elsewhere. Nodes keep serving, also the one whose agent restarts.
fn moved(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.cluster.kill_controller()?;
    lab.cluster.kill_agent(Node::B)?;
    lab.cluster.start_agent(Node::B)?;
    let serves = || {
        for client in CLIENTS {
            lab.wait_answer(client, settings::web())?;
        }
        lab.wait_asks(pod(Node::B)?)
    };
    checks.check(
        "without any controller, nodes keep serving, also after an agent restarts (S-199)",
        serves(),
    );
    lab.cluster.move_controllers("second.socket")?;
    let controller = lab.state.server.controller.clone();
    lab.cluster.start_controller_on(&controller, &[])?;
    lab.kubectl(&["apply", "-f", "-"], LATER)?;
    let address: IpAddr = "10.96.0.30".parse()?;
    let found = || {
        for client in CLIENTS {
            lab.wait_answer(client, (address, 80).into())?;
        }
        Ok(())
    };
    checks.check(
        "after all controllers moved at once, agents find them and follow changes",
        found(),
    );
    Ok(())
}
