//! Agents with a model of a kernel: the real receiver of the stream and the real programmer, on a kernel in memory that
//! refuses what it is set to refuse. They report what agents report about refused operations, many in the place of one
//! node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result};
use portolan_agent::health::Health;
use portolan_agent::kernel::SharedModel;
use portolan_agent::plan_watch::PlanWatch;
use portolan_agent::programmer::{Applied, Programmer};
use portolan_agent::receive::{Controllers, NetworkDialer, Receiver};
use portolan_agent::record::Record;
use portolan_agent::watermark::Remembered;
use portolan_reconcile::{SetRole, VirtualServerKey};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::work_folder::WorkFolder;

/// Agents of these nodes; dropping them closes their streams.
#[derive(Debug)]
pub struct ModelAgents {
    // Fields are dropped in this order.
    agents: BTreeMap<String, Agent>,
    /// In an option so that dropping can end its threads without waiting.
    runtime: Option<Runtime>,
    folder: WorkFolder,
}

#[derive(Debug)]
struct Agent {
    kernel: SharedModel,
    plans: Arc<PlanWatch>,
    receives: AbortHandle,
}

impl ModelAgents {
    /// Starts them, each on its kernel.
    ///
    /// # Errors
    /// When threads or files cannot be made.
    pub fn start(
        nodes: impl IntoIterator<Item = (String, SharedModel)>,
        controllers: &Controllers,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("agents")
            .enable_all()
            .build()
            .context("start the agents' threads")?;
        let mut agents = Self {
            agents: BTreeMap::new(),
            runtime: Some(runtime),
            folder: WorkFolder::private()?,
        };
        for (node, kernel) in nodes {
            agents.add(node, kernel, controllers.clone())?;
        }
        Ok(agents)
    }

    fn add(&mut self, node: String, kernel: SharedModel, controllers: Controllers) -> Result<()> {
        let runtime = self.runtime.as_ref().context("they have ended")?;
        let record = Record::open(&self.folder.path.join(&node))?;
        let plans = Arc::new(PlanWatch::default());
        let (done, applied) = watch::channel(Applied::default());
        let (drains, draining) = watch::channel(BTreeSet::new());
        let health: Arc<Health> = Arc::default();
        let programmer = Programmer::new(
            kernel.clone(),
            plans.clone(),
            record,
            done,
            drains,
            health.clone(),
        );
        let receiver = Receiver {
            node: node.as_str().into(),
            version: "model".into(),
            controllers,
            dialer: Arc::new(NetworkDialer),
            plans: plans.clone(),
            remembered: Remembered::default(),
            applied,
            draining,
            health,
            schedulers: || vec!["rr".into()],
            link: watch::Sender::default(),
        };
        let receives = runtime.spawn(receiver.run()).abort_handle();
        std::thread::Builder::new()
            .name(format!("{node} programs"))
            .spawn(move || programmer.run())?;
        let agent = Agent {
            kernel,
            plans,
            receives,
        };
        self.agents.insert(node, agent);
        Ok(())
    }

    /// The names of their nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.agents.keys().map(String::as_str)
    }

    /// The scheduler with which the kernel of a node serves a virtual server; `None` if it does not: it has no real
    /// server, or is not let through.
    #[must_use]
    pub fn serves(&self, node: &str, server: &VirtualServerKey) -> Option<String> {
        let model = self.agents.get(node)?.kernel.lock();
        let held = model.state.virtual_servers.get(server)?;
        let mut sets = model.state.sets.iter();
        let let_through = sets.any(|(id, set)| {
            let mut entries = set.entries.iter();
            id.role == SetRole::Frontend && entries.any(|entry| entry.server() == Some(*server))
        });
        (let_through && !held.real_servers.is_empty()).then(|| held.scheduler.to_string())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.plans.stop();
        self.receives.abort();
    }
}

impl Drop for ModelAgents {
    fn drop(&mut self) {
        self.agents.clear();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
