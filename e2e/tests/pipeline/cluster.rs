//! A controller on a folder of manifests, and agents with model kernels, in this process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use portolan_agent::health::Health;
use portolan_agent::kernel::SharedModel;
use portolan_agent::plan_watch::PlanWatch;
use portolan_agent::programmer::{Applied, Programmer};
use portolan_agent::receive::{Access, Address, NetworkDialer, Receiver};
use portolan_agent::record::Record;
use portolan_agent::saved::{SavedPlan, restore_saved};
use portolan_agent::watermark::Remembered;
use portolan_controller::cluster_state::Shared;
use portolan_controller::engine::{Engine, ManifestSource};
use portolan_controller::store::Store;
use portolan_controller::stream::{Listen, serve};
use portolan_controller::watch::Mark;
use portolan_plan::{NodePlan, PlanHash};
use portolan_planner::model::Kind;
use portolan_reconcile::{Desired, HostAddress, Op};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot, watch};

use crate::manifests::{EMPTY, NODES, SLICE, WEB};

/// Timeout of every wait, longer than any step takes.
const LIMIT: Duration = Duration::from_secs(20);

/// A controller and its manifests.
pub(crate) struct Cluster {
    folder: TempDir,
    /// How far it has read each kind, as if the manifests came from an API server.
    marks: BTreeMap<Kind, Mark>,
    running: Option<Running>,
}

struct Running {
    store: Arc<Store>,
    /// The lists that streams request.
    lists: mpsc::Receiver<Kind>,
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
            marks: BTreeMap::new(),
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
        store.note_marks(&self.marks);
        store.note_planned();
        let (ask, lists) = mpsc::channel(64);
        store.relist_by(move |kind| {
            let _ = ask.try_send(kind);
        });
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
            lists,
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

    /// As [`Cluster::restart`]; the other controller has read Services up to this version, with this sum.
    pub(crate) async fn restart_at(&mut self, newest: u64, sum: u64) {
        let mark = Mark {
            newest,
            sum,
            lists: 1,
            began: None,
        };
        self.marks = [(Kind::Service, mark)].into();
        self.restart().await;
    }

    /// Waits until a stream requests a list.
    pub(crate) async fn list_requested(&mut self) {
        let running = self.running.as_mut().expect("a running controller");
        let requested = tokio::time::timeout(LIMIT, running.lists.recv()).await;
        assert_eq!(requested.unwrap(), Some(Kind::Service));
    }

    /// Answers the request once the node has another plan than `old`: the controller has read up to this version.
    pub(crate) async fn listed(&mut self, newest: u64, sum: u64, node: &str, old: PlanHash) {
        let started = tokio::time::Instant::now();
        while self.hash(node) == Some(old) {
            assert!(started.elapsed() < LIMIT, "{node} has no newer plan");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mark = Mark {
            newest,
            sum,
            lists: 2,
            began: Some(tokio::time::Instant::now()),
        };
        self.marks = [(Kind::Service, mark)].into();
        let running = self.running.as_ref().expect("a running controller");
        running.store.note_marks(&self.marks);
        running.store.note_planned();
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
    pub(crate) applied: watch::Receiver<Applied>,
    receiver: tokio::task::JoinHandle<()>,
    programmer: JoinHandle<()>,
    state: TempDir,
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
        Self::start_on(cluster, name, kernel, Arc::default(), state)
    }

    fn start_on(
        cluster: &Cluster,
        name: &str,
        kernel: SharedModel,
        plans: Arc<PlanWatch>,
        state: TempDir,
    ) -> Self {
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
            remembered: Remembered::open(state.path(), name),
            applied: applied.clone(),
            draining,
            health,
            schedulers: Vec::new,
            link: watch::Sender::default(),
        };
        Self {
            name: name.into(),
            kernel,
            plans,
            applied,
            receiver: tokio::spawn(receiver.run()),
            programmer: std::thread::spawn(move || programmer.run()),
            state,
        }
    }

    /// Kills the agent and starts it again on its disk, which has the plan `saved`: plans are saved later than they are
    /// applied.
    pub(crate) async fn restart(self, cluster: &Cluster, saved: &NodePlan) -> Self {
        let Self {
            name,
            kernel,
            plans,
            receiver,
            programmer,
            state,
            ..
        } = self;
        receiver.abort();
        drop(receiver.await);
        plans.stop();
        programmer.join().unwrap();
        let disk = SavedPlan::new(state.path(), &name);
        disk.write(saved, SystemTime::now()).unwrap();
        let plans = Arc::default();
        restore_saved(&disk, &plans, SystemTime::now()).await;
        Self::start_on(cluster, &name, kernel, plans, state)
    }

    /// The plan that it holds.
    pub(crate) fn plan(&self) -> Arc<NodePlan> {
        self.plans.plan()
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
