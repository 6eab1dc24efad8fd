//! Light agents in place of the agents' containers. Each ready pod has one, with a token bound to the pod and the
//! version in the image tag. It connects when the pod becomes ready and ends with the pod.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use portolan_agent::receive::{Addresses, Controllers, Tls, Trust};

use super::super::release::NAMESPACE;
use super::TRACK;
use crate::credentials::{ACCOUNT, AUDIENCE, bound};
use crate::light_agents::LightAgents;

/// Poll interval for pods.
const LOOK: Duration = Duration::from_millis(200);

/// Where agents find controllers and their tokens.
pub(super) struct Ways {
    pub(super) addresses: Addresses,
    pub(super) ca: PathBuf,
    pub(super) folder: PathBuf,
}

/// A pod that an agent runs in.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Running {
    uid: String,
    name: String,
    /// The tag of its image.
    tag: String,
}

#[derive(Debug)]
struct State {
    agents: LightAgents,
    /// By node.
    pods: BTreeMap<String, Running>,
    /// Number of agent starts per node.
    starts: BTreeMap<String, u32>,
    /// Agents of this image tag fail on these nodes.
    broken: (String, BTreeSet<String>),
    /// Expected number of nodes with an agent, and the highest number of nodes without one so far.
    nodes: usize,
    missing: usize,
    trouble: Option<String>,
}

/// Everything that runs; dropping it ends everything.
pub(super) struct Fleet {
    state: Arc<Mutex<State>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Fleet {
    pub(super) fn start(kubeconfig: &Path, ways: Ways) -> Result<Self> {
        let no_agents: [(String, Controllers); 0] = [];
        let state = Arc::new(Mutex::new(State {
            agents: LightAgents::start_with(no_agents)?,
            pods: BTreeMap::new(),
            starts: BTreeMap::new(),
            broken: Default::default(),
            nodes: 0,
            missing: 0,
            trouble: None,
        }));
        let ends: Arc<AtomicBool> = Arc::default();
        let (shared, stop) = (state.clone(), ends.clone());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("start a thread")?;
        let client = {
            let client = crate::control_plane::kubelet::client(kubeconfig);
            runtime.block_on(client)?
        };
        let thread = std::thread::Builder::new()
            .name("pods of agents".into())
            .spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let looked = runtime.block_on(follow(&client, &ways, &shared));
                    locked(&shared).trouble = looked.err().map(|error| format!("{error:#}"));
                    std::thread::sleep(LOOK);
                }
            })?;
        Ok(Self {
            state,
            ends,
            thread: Some(thread),
        })
    }

    /// Restarts the count of the most nodes without an agent.
    pub(super) fn begin_count(&self, nodes: usize) {
        let mut state = locked(&self.state);
        (state.nodes, state.missing) = (nodes, 0);
    }

    /// The most nodes without an agent at one time since [`Self::begin_count`].
    pub(super) fn most_missing(&self) -> usize {
        locked(&self.state).missing
    }

    /// Number of agents that have a plan.
    pub(super) fn planned(&self) -> usize {
        let state = locked(&self.state);
        let planned = |node: &&String| state.agents.hash(node).is_some();
        state.pods.keys().filter(planned).count()
    }

    /// Number of agent starts on each node.
    pub(super) fn starts(&self) -> BTreeMap<String, u32> {
        locked(&self.state).starts.clone()
    }

    /// The nodes with this scheduler in their settings.
    pub(super) fn with_scheduler(&self, scheduler: &str) -> Vec<String> {
        let state = locked(&self.state);
        let with = |node: &&String| state.agents.scheduler(node).as_deref() == Some(scheduler);
        state.pods.keys().filter(with).cloned().collect()
    }

    /// Makes agents of this image fail on these nodes from now on.
    pub(super) fn break_on(&self, tag: &str, nodes: impl IntoIterator<Item = String>) {
        locked(&self.state).broken = (tag.to_owned(), nodes.into_iter().collect());
    }

    pub(super) fn trouble(&self) -> Option<String> {
        locked(&self.state).trouble.clone()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread has reported its errors while it ran.
            drop(thread.join());
        }
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the agents of pods that are no longer ready, and starts those of pods that became ready.
async fn follow(client: &Client, ways: &Ways, shared: &Mutex<State>) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let pods = pods.list(&ListParams::default().labels(TRACK)).await?;
    let ready: BTreeMap<_, _> = pods.items.iter().filter_map(running).collect();
    let new: Vec<_> = {
        let mut state = locked(shared);
        let gone = |(node, pod): &(&String, &Running)| ready.get(*node) != Some(*pod);
        let gone = state.pods.iter().filter(gone);
        let gone: Vec<_> = gone.map(|(node, _)| node.clone()).collect();
        for node in gone {
            state.agents.remove(&node);
            state.pods.remove(&node);
        }
        state.missing = state.missing.max(state.nodes.saturating_sub(ready.len()));
        let new = |(node, _): &(&String, &Running)| !state.pods.contains_key(*node);
        let new = ready.iter().filter(new);
        new.map(|(node, pod)| (node.clone(), pod.clone())).collect()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    for (node, pod) in new {
        let of = (pod.name.as_str(), Some(pod.uid.clone()));
        let token = bound(&accounts, ACCOUNT, of, AUDIENCE).await?;
        let file = ways.folder.join(format!("token-{}", pod.uid));
        std::fs::write(&file, token)?;
        let trust = Trust::Tls(Tls {
            ca: ways.ca.clone(),
            name: "portolan-controller".to_owned().try_into()?,
            token: Some(file),
        });
        let controllers = Controllers::new(ways.addresses.clone(), trust);
        let mut state = locked(shared);
        let (tag, nodes) = &state.broken;
        // The agent has to fail from its start: a first success would let the rollout continue.
        if *tag == pod.tag && nodes.contains(&node) {
            state
                .agents
                .add_failing(node.clone(), &pod.tag, controllers)?;
        } else {
            state.agents.add(node.clone(), &pod.tag, controllers)?;
        }
        *state.starts.entry(node.clone()).or_default() += 1;
        state.pods.insert(node, pod);
    }
    Ok(())
}

fn running(pod: &Pod) -> Option<(String, Running)> {
    let status = pod.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    let ready = conditions.any(|one| one.type_ == "Ready" && one.status == "True");
    let spec = pod.spec.as_ref()?;
    let image = spec.containers.first()?.image.as_ref()?;
    let (_, tag) = image.rsplit_once(':')?;
    let running = Running {
        uid: pod.uid()?,
        name: pod.name_any(),
        tag: tag.to_owned(),
    };
    let here = ready && pod.metadata.deletion_timestamp.is_none();
    Some((spec.node_name.clone()?, running)).filter(|_| here)
}
