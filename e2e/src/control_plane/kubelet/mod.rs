//! A small kubelet for many nodes: it registers them, binds unscheduled pods to them in turn,
//! reports pods as running and ready, and lets deleted pods terminate for a short while. It never
//! starts containers: scenarios with traffic run their own servers at the pod addresses.
//!
//! It works on its own threads and survives restarts of the API server; it ends when dropped.

mod nodes;
mod pods;
mod pool;
mod requests;
mod work;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt as _};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

pub use nodes::LabNode;
use pods::Pods;
pub use pods::Summary;
pub use pool::{AddressPool, PodAddresses};

use crate::waits::Waits;

/// Default termination period of pods.
const GRACE: Duration = Duration::from_secs(1);

/// State shared by its threads and its owner.
#[derive(Debug, Default)]
struct Shared {
    pods: Mutex<Pods>,
    /// Something may be due earlier than it was.
    changed: Notify,
}

impl Shared {
    fn pods(&self) -> MutexGuard<'_, Pods> {
        // No thread panics while holding the lock; if one did, the state is still consistent
        // enough.
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kubelet of a control plane's nodes.
pub struct Kubelet {
    shared: Arc<Shared>,
    client: Client,
    /// In an option so that dropping can take it and end its threads.
    runtime: Option<Runtime>,
}

impl Kubelet {
    /// Starts without nodes; `kubeconfig` is that of a cluster administrator.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub fn start(kubeconfig: &Path, pool: AddressPool) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("kubelet")
            .enable_all()
            .build()
            .context("start the kubelet's threads")?;
        let client = runtime.block_on(client(kubeconfig))?;
        let shared = Arc::new(Shared::default());
        {
            let mut pods = shared.pods();
            pods.pool = pool;
            pods.grace = GRACE;
        }
        drop(runtime.spawn(work::run(client.clone(), Arc::clone(&shared))));
        Ok(Self {
            shared,
            client,
            runtime: Some(runtime),
        })
    }

    /// Starts with numbered nodes ([`LabNode::numbered`]), each with room for `pods_a_node` pods.
    ///
    /// # Errors
    /// As [`Self::start`] and [`Self::register`].
    pub fn start_with_nodes(kubeconfig: &Path, nodes: u8, pods_a_node: u32) -> Result<Self> {
        let mut pool = AddressPool::new();
        for number in 1..=nodes {
            let name = LabNode::numbered(number).name;
            pool.add_range(&name, &LabNode::first_pod(number), pods_a_node)?;
        }
        let kubelet = Self::start(kubeconfig, pool)?;
        for number in 1..=nodes {
            kubelet.register(&LabNode::numbered(number).object())?;
        }
        Ok(kubelet)
    }

    /// Creates a node, or makes it as given, with status Ready; pods may be bound to it from now
    /// on. Its conditions and its taint "not ready" are the kubelet's own.
    ///
    /// # Errors
    /// The error of the API server.
    pub fn register(&self, node: &Node) -> Result<()> {
        let name = node.name_any();
        let Some(runtime) = &self.runtime else {
            bail!("the kubelet has ended");
        };
        self.shared.pods().own_node(&name, Instant::now());
        self.shared.changed.notify_one();
        runtime
            .block_on(requests::register(self.client.clone(), node))
            .with_context(|| format!("register node {name}"))
    }

    /// Adds addresses that pods may be given.
    pub fn add_addresses(&self, node: &str, addresses: impl IntoIterator<Item = PodAddresses>) {
        let mut pods = self.shared.pods();
        for some in addresses {
            pods.pool.add(node, some);
        }
    }

    /// How long pods that are deleted from now on stay terminating; default one second.
    pub fn set_grace(&self, grace: Duration) {
        self.shared.pods().grace = grace;
    }

    /// Number of pods by state.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.shared.pods().summary()
    }

    /// Waits until `count` pods run and none is pending or terminating.
    ///
    /// # Errors
    /// On timeout, with the observed state.
    pub fn wait_running(&self, waits: Waits, count: usize, on_hardware: Duration) -> Result<()> {
        let wanted = Summary {
            running: count,
            ..Summary::default()
        };
        waits.eventually(&format!("{count} pods to run"), on_hardware, || {
            let seen = self.summary();
            let same = Summary {
                trouble: None,
                ..seen
            } == wanted;
            ensure!(same, "{seen:?}");
            Ok(())
        })
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub(crate) async fn client(kubeconfig: &Path) -> Result<Client> {
    let reading = || format!("read {}", kubeconfig.display());
    let file = Kubeconfig::read_from(kubeconfig).with_context(reading)?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .with_context(reading)?;
    // The server is on loopback, whatever proxy the environment names.
    config.proxy_url = None;
    Client::try_from(config).with_context(|| format!("use {}", kubeconfig.display()))
}
