//! A controller on a folder of manifests, and agents with model kernels, in this process.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use portolan_agent::health::Health;
use portolan_agent::kernel::SharedModel;
use portolan_agent::plan_watch::PlanWatch;
use portolan_agent::programmer::{Applied, Programmer};
use portolan_agent::receive::{Access, Address, NetworkDialer, Receiver};
use portolan_agent::record::Record;
use portolan_controller::cluster_state::Shared;
use portolan_controller::engine::{Engine, ManifestSource};
use portolan_controller::store::Store;
use portolan_controller::stream::{Listen, serve};
use portolan_plan::PlanHash;
use portolan_reconcile::{Desired, HostAddress, Op};
use tempfile::TempDir;
use tokio::sync::{oneshot, watch};

/// Timeout of every wait, longer than any step takes.
const LIMIT: Duration = Duration::from_secs(20);

pub(crate) const WEB: &str = "apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], ipFamilies: [IPv4], ports: [{name: http, port: 80, protocol: TCP}]}
";

pub(crate) const SLICE: &str = "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints:
- {addresses: [10.244.1.5], nodeName: node-a}
- {addresses: [10.244.2.5], nodeName: node-b}
";

const EMPTY: &str = "apiVersion: v1
kind: Service
metadata: {name: empty, namespace: shop}
spec: {clusterIP: 10.96.0.99, clusterIPs: [10.96.0.99], ipFamilies: [IPv4], ports: [{port: 80, protocol: TCP}]}
";

pub(crate) const NODES: &str = "apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {topology.kubernetes.io/zone: zone-1}}
spec: {podCIDR: 10.244.1.0/24, podCIDRs: [10.244.1.0/24]}
status: {addresses: [{type: InternalIP, address: 192.168.50.11}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-b, labels: {topology.kubernetes.io/zone: zone-2}}
spec: {podCIDR: 10.244.2.0/24, podCIDRs: [10.244.2.0/24]}
status: {addresses: [{type: InternalIP, address: 192.168.50.12}]}
---
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [10.96.0.0/16]}
";

/// The same endpoints, each with a hint for the zone of its node.
pub(crate) const HINTED_SLICE: &str = "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints:
- {addresses: [10.244.1.5], nodeName: node-a, hints: {forZones: [{name: zone-1}]}}
- {addresses: [10.244.2.5], nodeName: node-b, hints: {forZones: [{name: zone-2}]}}
";

/// A controller and its manifests.
pub(crate) struct Cluster {
    folder: TempDir,
    running: Option<Running>,
}

struct Running {
    store: Arc<Store>,
    stop_engine: std::sync::mpsc::SyncSender<()>,
    engine: JoinHandle<()>,
    stop_server: oneshot::Sender<()>,
    server: tokio::task::JoinHandle<()>,
}

impl Cluster {
    /// Starts on a small cluster of two nodes.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("manifests")).unwrap();
        let mut cluster = Self {
            folder,
            running: None,
        };
        for (name, text) in [
            ("nodes.yaml", NODES),
            ("web.yaml", WEB),
            ("slice.yaml", SLICE),
            ("empty.yaml", EMPTY),
        ] {
            cluster.write(name, text);
        }
        cluster.run();
        cluster
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("controller.sock")
    }

    fn run(&mut self) {
        let store = Arc::new(Store::default());
        let engine = Engine::new(Shared::default(), store.clone(), None);
        let engine = ManifestSource::new(engine, self.folder.path().join("manifests"));
        let (stop_engine, stopped) = std::sync::mpsc::sync_channel(1);
        let engine = std::thread::spawn(move || engine.follow(&stopped));
        let (stop_server, ended) = oneshot::channel();
        let (socket, served) = (self.socket(), store.clone());
        let server = tokio::spawn(async move {
            let (listener, _) = Listen::Unix(socket).open_insecure().await.unwrap();
            // A dropped sender also ends the wait.
            serve(listener, served, Arc::default(), async {
                drop(ended.await);
            })
            .await
            .unwrap();
        });
        self.running = Some(Running {
            store,
            stop_engine,
            engine,
            stop_server,
            server,
        });
    }

    /// Ends the controller.
    pub(crate) async fn stop(&mut self) {
        let Some(running) = self.running.take() else {
            return;
        };
        drop(running.stop_server);
        running.server.await.unwrap();
        drop(running.stop_engine);
        running.engine.join().unwrap();
    }

    /// Ends the controller and starts another one.
    pub(crate) async fn restart(&mut self) {
        self.stop().await;
        self.run();
    }

    /// Writes a manifest into the folder atomically.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let fresh = self.folder.path().join("fresh");
        std::fs::write(&fresh, text).unwrap();
        std::fs::rename(fresh, self.folder.path().join("manifests").join(name)).unwrap();
    }

    /// The hash of a node's plan at the controller.
    pub(crate) fn hash(&self, node: &str) -> Option<PlanHash> {
        Some(self.running.as_ref()?.store.plan(node)?.hash())
    }
}

/// An agent with its kernel.
pub(crate) struct Agent {
    pub(crate) name: String,
    pub(crate) kernel: SharedModel,
    plans: Arc<PlanWatch>,
    applied: watch::Receiver<Applied>,
    receiver: tokio::task::JoinHandle<()>,
    programmer: JoinHandle<()>,
    // Kept for as long as the agent runs.
    _state: TempDir,
}

impl Agent {
    /// Starts with an empty kernel.
    pub(crate) fn start(cluster: &Cluster, name: &str) -> Self {
        Self::start_with(cluster, name, SharedModel::default())
    }

    /// Starts on this kernel.
    pub(crate) fn start_with(cluster: &Cluster, name: &str, kernel: SharedModel) -> Self {
        let address = if name == "node-a" {
            "192.168.50.11/24"
        } else {
            "192.168.50.12/24"
        };
        let host = HostAddress::on("eth0", address.parse().unwrap());
        kernel.lock().state.host.addresses = vec![host];
        let state = tempfile::tempdir().unwrap();
        let plans = Arc::new(PlanWatch::default());
        let (send, applied) = watch::channel(Applied::default());
        let record = Record::open(state.path()).unwrap();
        let (drains, draining) = watch::channel(BTreeSet::new());
        let health: Arc<Health> = Arc::default();
        let programmer = {
            let health = health.clone();
            Programmer::new(kernel.clone(), plans.clone(), record, send, drains, health)
        };
        let receiver = Receiver {
            node: name.into(),
            version: "test".into(),
            controllers: Access::insecure(Address::Unix(cluster.socket())).into(),
            dialer: Arc::new(NetworkDialer),
            plans: plans.clone(),
            applied: applied.clone(),
            draining,
            health,
            link: watch::Sender::default(),
        };
        Self {
            name: name.into(),
            kernel,
            plans,
            applied,
            receiver: tokio::spawn(receiver.run()),
            programmer: std::thread::spawn(move || programmer.run()),
            _state: state,
        }
    }

    /// Ends the agent, and leaves its kernel.
    pub(crate) fn stop(self) -> SharedModel {
        self.receiver.abort();
        self.plans.stop();
        self.programmer.join().unwrap();
        self.kernel
    }

    /// The result for this generation of the plan or a later one.
    pub(crate) async fn applied(&self, generation: u64) -> Applied {
        self.applied_where(|applied| applied.generation >= generation)
            .await
    }

    /// The first result of a pass that satisfies a condition.
    pub(crate) async fn applied_where(&self, holds: impl FnMut(&Applied) -> bool) -> Applied {
        let mut applied = self.applied.clone();
        let waited = tokio::time::timeout(LIMIT, applied.wait_for(holds)).await;
        waited
            .unwrap_or_else(|_| panic!("{}: nothing like that was applied", self.name))
            .unwrap()
            .clone()
    }

    /// Waits until the virtual servers, as text, satisfy a condition.
    pub(crate) async fn wait(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let started = tokio::time::Instant::now();
        while !holds(&self.servers()) {
            assert!(
                started.elapsed() < LIMIT,
                "{}: {what} did not arrive",
                self.name
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// All virtual and real servers as text.
    fn servers(&self) -> String {
        let kernel = self.kernel.lock();
        let mut text = String::new();
        for (server, held) in &kernel.state.virtual_servers {
            let backends: Vec<_> = held
                .real_servers
                .keys()
                .map(|real| real.to_string())
                .collect();
            text.push_str(&format!("{server} -> {}\n", backends.join(" ")));
        }
        text
    }

    /// The operations since the last [`Agent::forget`].
    pub(crate) fn log(&self) -> Vec<Op> {
        self.kernel.lock().log.clone()
    }

    /// Clears the log of operations.
    pub(crate) fn forget(&self) {
        self.kernel.lock().log.clear();
    }

    /// The real servers of a virtual server.
    pub(crate) fn backends(&self, server: &str) -> Vec<String> {
        let kernel = self.kernel.lock();
        let held = kernel.state.virtual_servers.get(&server.parse().unwrap());
        held.into_iter()
            .flat_map(|held| held.real_servers.keys())
            .map(|real| real.to_string())
            .collect()
    }

    /// The entries of a set.
    pub(crate) fn entries(&self, set: &str) -> Vec<String> {
        let kernel = self.kernel.lock();
        let Ok(id) = set.parse() else {
            panic!("{set} is none of our sets")
        };
        kernel.state.sets[&id]
            .entries
            .iter()
            .map(ToString::to_string)
            .collect()
    }
}

/// Waits until the kernel matches the controller's plan exactly, without failures.
pub(crate) async fn settled(cluster: &Cluster, agent: &Agent) {
    let store = &cluster
        .running
        .as_ref()
        .expect("a running controller")
        .store;
    let started = tokio::time::Instant::now();
    loop {
        let right = store.plan(&agent.name).is_some_and(|plan| {
            let applied = agent.applied.borrow();
            applied.hash == plan.hash() && applied.failed == 0 && {
                let kernel = agent.kernel.lock();
                let desired = Desired::new(&plan, &kernel.state.host).unwrap();
                desired.virtual_servers == kernel.state.virtual_servers
                    && desired.routes == kernel.state.routes
            }
        });
        if right {
            return;
        }
        assert!(started.elapsed() < LIMIT, "{} does not settle", agent.name);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
