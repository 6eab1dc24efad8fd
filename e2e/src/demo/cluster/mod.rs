//! `cargo demo --cluster`: the same two nodes, fed by a real API server. Kubernetes' own
//! controllers create slices for pods; every change is a kubectl command on the screen. Everything
//! shown is also checked against the slices that Kubernetes wrote.

mod change;
mod history;
mod kernels;
mod kubectl;
mod objects;
mod traced;
mod wanted;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;

use history::Endpoints;
use kernels::Kernel;
use kubectl::Kubectl;
use objects::Objects;

use super::{POD_PORTS, residents, summary};
use crate::checks::Checks;
use crate::cluster::Cluster;
use crate::control_plane::kubelet::{AddressPool, Kubelet, LabNode};
use crate::jaeger::Query;
use crate::stage::Stage;
use crate::topology::world::{Family, Node, Pod, Resident};
use crate::topology::{Network, Topology};
use crate::traffic::server::Server;
use crate::work_folder::WorkFolder;
use crate::{installation, witness};

/// The cluster IP of the Service `web`, as in its manifest.
const WEB: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10)), 80);
/// As in the Deployment's manifest.
const FIRST: change::Settled = change::Settled {
    running: 4,
    waiting: 0,
    zone_of_b: "zone-2",
};
/// From a plan in the kernel until its object says so: an object is written every 30 s at most.
const REPORTED: Duration = Duration::from_secs(50);
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// How the API server is reached.
#[derive(Debug, Args)]
pub struct Reach {
    /// Feeds the cluster from a real API server, which this kubeconfig reaches.
    #[arg(long = "kubeconfig", requires = "cluster")]
    kubeconfig: Option<PathBuf>,
    /// Starts the controller with this kubeconfig instead: a user with only its RBAC permissions.
    #[arg(long, requires = "cluster", value_name = "KUBECONFIG")]
    controller_kubeconfig: Option<PathBuf>,
    /// Lets the controller send a trace of each change there, by OTLP over gRPC, and shows one.
    #[arg(long, requires_all = ["cluster", "jaeger"], value_name = "URL")]
    traces_to: Option<String>,
    /// URL of Jaeger's query API.
    #[arg(long, requires = "traces_to", value_name = "http://ADDRESS:PORT")]
    jaeger: Option<Query>,
}

impl Reach {
    fn for_all(&self) -> Result<&Path> {
        self.kubeconfig
            .as_deref()
            .context("--cluster needs --kubeconfig; `cargo demo --cluster` starts an API server")
    }

    fn for_controller(&self) -> Result<&Path> {
        let own = self.controller_kubeconfig.as_deref();
        own.map_or_else(|| self.for_all(), Ok)
    }

    /// For the controller's command line: every change is traced.
    fn traces(&self) -> Vec<&str> {
        let Some(url) = &self.traces_to else {
            return Vec::new();
        };
        [
            "--traces",
            url,
            "--traces-share",
            "1",
            "--traces-slow",
            "1h",
        ]
        .into()
    }
}

/// Everything on the stage; dropping it ends everything.
struct Scene<'lab> {
    // Fields are dropped in this order: dependents first.
    kernels: BTreeMap<Node, Kernel>,
    cluster: Cluster,
    objects: Objects,
    kubelet: Kubelet,
    kubectl: Kubectl,
    _folder: WorkFolder,
    topology: &'lab Topology,
}

impl Scene<'_> {
    /// The endpoints that new connections on a node should reach, from the slices.
    fn wanted(&self, node: Node) -> Endpoints {
        let latest = self.objects.wanted(node).get();
        latest.map_or_else(Endpoints::new, |(_, endpoints)| endpoints)
    }

    /// The endpoints that they reach, from the kernel.
    fn has(&self, node: Node) -> Endpoints {
        let latest = self.kernels[&node].takes.get();
        latest.map_or_else(Endpoints::new, |(_, endpoints)| endpoints)
    }
}

/// Shows it. Returns true if everything was as expected.
///
/// # Errors
/// When it cannot go on: no IPVS, no root, no API server, a program is missing or ends.
pub fn run(stage: &Stage, reach: &Reach) -> Result<bool> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "the demo makes network namespaces: run it as root"
    );
    witness::require_ipvs()?;
    let (console, start) = (stage.console, Instant::now());
    let mut checks = Checks::new(console);
    console.heading("Two nodes in two zones, fed by a real API server");
    let topology = Arc::new(Topology::build(Network::Routed, stage.waits)?);
    let _servers = Pod::all()
        .map(|pod| Server::start(topology.of(Resident::Pod(pod))?, &pod.name(), &POD_PORTS))
        .collect::<Result<Vec<_>>>()?;
    residents(console);
    let mut scene = set(stage, reach, &topology)?;
    first(stage, &mut checks, &mut scene, reach)?;
    for change in &change::CHANGES {
        change::show(stage, &mut checks, &mut scene, change)?;
    }
    console.heading("The plans now (each object is written every 30 s at most)");
    let reported = wait_reported(stage, &scene, "zone-1 zone-1");
    scene.kubectl.show("get proxyplans")?;
    checks.check("the object of node-b has its new zone", reported);
    if let Some(jaeger) = &reach.jaeger {
        traced::show(stage, &mut checks, &mut scene, jaeger)?;
    }
    let claim = "from kubectl through Kubernetes' own controllers to two kernels and their clients";
    summary(console, &checks, &scene.cluster, start.elapsed(), claim);
    Ok(checks.all_passed())
}

/// Installs, registers the nodes, and starts everything; nothing is to be seen yet.
fn set<'lab>(stage: &Stage, reach: &Reach, topology: &'lab Arc<Topology>) -> Result<Scene<'lab>> {
    let kubeconfig = reach.for_all()?;
    let folder = WorkFolder::make()?;
    let kubectl = Kubectl::new(kubeconfig, folder.path.join("kubectl"), stage.console);
    installation::install(|words, input| kubectl.quietly(words, input))?;
    let mut pool = AddressPool::new();
    for pod in Pod::all() {
        let addresses = Family::ALL.map(|family| pod.address(family));
        pool.add(pod.node.name(), addresses.to_vec());
    }
    let kubelet = Kubelet::start(kubeconfig, pool)?;
    for node in Node::ALL {
        let node = LabNode {
            name: node.name().to_owned(),
            zone: node.zone().to_owned(),
            addresses: Family::ALL.map(|family| node.address(family)).to_vec(),
            pod_ranges: Family::ALL.map(|family| node.pod_range(family)).to_vec(),
        };
        kubelet.register(&node.object())?;
    }
    let observe = |node| Ok((node, Kernel::observe(topology.node(node)?, WEB)?));
    let kernels = Node::ALL.map(observe).into_iter().collect::<Result<_>>()?;
    Ok(Scene {
        kernels,
        cluster: Cluster::new(topology, stage.waits, stage.dataplane, [])?,
        objects: Objects::watch(kubeconfig, "web")?,
        kubelet,
        kubectl,
        _folder: folder,
        topology,
    })
}

/// The first pods and slices, then the programs under test, then the output of kubectl.
fn first(stage: &Stage, checks: &mut Checks, scene: &mut Scene<'_>, reach: &Reach) -> Result<()> {
    let console = stage.console;
    console.heading("A Deployment of four pods, and Services that prefer the zone and the node");
    let manifest = stage.files.text("demo/cluster/web.yaml")?;
    manifest.lines().for_each(|line| console.line(line));
    scene.kubectl.quietly(&["apply", "-f", "-"], &manifest)?;
    change::wait_for_slices(stage, scene, FIRST)?;
    let began = Instant::now();
    let controller = reach.for_controller()?;
    scene
        .cluster
        .start_on_api_server(controller, &reach.traces())?;
    change::wait(stage, scene, FIRST).map_err(|error| scene.cluster.with_logs(error))?;
    let ms = began.elapsed().as_millis();
    checks.check_quietly("both kernels follow the first slices", Ok(()));
    console.line(&format!(
        "\ncontroller and agents started; {ms} ms later new connections of {WEB} go to:"
    ));
    for node in Node::ALL {
        let to = change::names(&scene.has(node));
        console.line(&format!("  {} ({}): {to}", node.name(), node.zone()));
    }
    console.heading("The output of kubectl");
    let reported = wait_reported(stage, scene, "zone-1 zone-2");
    scene.kubectl.show("get nodes,pods -o wide")?;
    scene.kubectl.show("get proxyplans")?;
    scene.kubectl.show("get pp node-a -o yaml")?;
    checks.check("the plans of both nodes are objects", reported);
    Ok(())
}

/// Waits until the objects of both plans have these zones and say that the kernels have them.
fn wait_reported(stage: &Stage, scene: &Scene<'_>, zones: &str) -> Result<()> {
    let path = "jsonpath={.items[*].spec.zone} \
                 {.items[*].status.conditions[?(@.type==\"Applied\")].status}";
    let wanted = format!("{zones} True True");
    let mut last = String::new();
    let waited = stage.waits.until(
        "the objects of both plans",
        REPORTED,
        ASK_AGAIN,
        || {
            last = scene.kubectl.quietly(&["get", "pp", "-o", path], "")?;
            Ok((last.trim() == wanted).then_some(()))
        },
        String::new,
    );
    waited.map_err(|error| anyhow!("{error:#}they say {last:?}, not {wanted:?}"))
}
