//! Agents without a kernel: the real receiver of the stream, which reports each plan as applied at
//! once, or as failed on request. Hundreds of them fit in the place of one node.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use portolan_agent::plan_watch::{PlanWatch, Taken, Woken};
use portolan_agent::programmer::Applied;
use portolan_agent::receive::{Access, Address, Controllers, Link, NetworkDialer, Receiver};
use portolan_agent::watermark::Remembered;
use portolan_plan::{Family, PlanDocument, PlanHash, ServiceId};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Agents of these nodes; dropping them closes their streams.
#[derive(Debug)]
pub struct LightAgents {
    agents: BTreeMap<String, Agent>,
    /// In an option so that dropping can end its threads without waiting.
    runtime: Option<Runtime>,
}

/// One of them; dropping it closes its stream.
#[derive(Debug)]
struct Agent {
    plans: Arc<PlanWatch>,
    link: watch::Receiver<Link>,
    failing: Arc<AtomicBool>,
    held: Arc<AtomicBool>,
    dislike: Arc<Mutex<Dislike>>,
    taken: Arc<Mutex<History>>,
    receives: AbortHandle,
}

/// The error of an agent that fails.
pub const FAILURE: &str = "add a virtual server: no memory";
/// The version of agents without an image.
const VERSION: &str = "light";
/// Settings that an agent cannot apply, and whether it ever had them.
#[derive(Debug, Default)]
struct Dislike {
    scheduler: Option<String>,
    met: bool,
}

/// The plans that an agent took, one after the other.
#[derive(Debug, Default)]
struct History {
    hashes: Vec<PlanHash>,
}

impl History {
    fn note(&mut self, hash: PlanHash) {
        if self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// Whether a plan was applied twice, with another one in between.
    fn went_back(&self) -> bool {
        let different: HashSet<_> = self.hashes.iter().collect();
        different.len() < self.hashes.len()
    }
}

/// Poll interval of a stuck thread.
const STUCK: Duration = Duration::from_millis(5);
/// Poll interval for the end of a thread.
const LOOK: Duration = Duration::from_secs(3600);

impl LightAgents {
    /// Starts them; they connect to the controller's socket whenever it is there.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub fn start(socket: &Path, nodes: impl IntoIterator<Item = String>) -> Result<Self> {
        let access = Access::insecure(Address::Unix(socket.to_owned()));
        Self::start_with(nodes.into_iter().map(|node| (node, access.clone())))
    }

    /// The same, each with a way to the controller of its own.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub fn start_with<C: Into<Controllers>>(
        nodes: impl IntoIterator<Item = (String, C)>,
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
        };
        for (node, controllers) in nodes {
            agents.add(node, VERSION, controllers)?;
        }
        Ok(agents)
    }

    /// Starts the agent of one more node, or another one in place of the node's, as a program of this version.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub fn add(
        &mut self,
        node: String,
        version: &str,
        controllers: impl Into<Controllers>,
    ) -> Result<()> {
        self.start_agent(node, version, controllers.into(), false)
    }

    /// The same, with an agent that fails from its start: see [`Self::set_failing`].
    ///
    /// # Errors
    /// When threads cannot be started.
    pub fn add_failing(
        &mut self,
        node: String,
        version: &str,
        controllers: impl Into<Controllers>,
    ) -> Result<()> {
        self.start_agent(node, version, controllers.into(), true)
    }

    fn start_agent(
        &mut self,
        node: String,
        version: &str,
        controllers: Controllers,
        fails: bool,
    ) -> Result<()> {
        self.remove(&node);
        let runtime = self.runtime.as_ref().context("they have ended")?;
        let plans = Arc::new(PlanWatch::default());
        let (done, applied) = watch::channel(Applied::default());
        let sender = watch::Sender::default();
        let link = sender.subscribe();
        let (drains, draining) = watch::channel(BTreeSet::new());
        let receiver = Receiver {
            node: node.as_str().into(),
            version: version.into(),
            controllers,
            dialer: Arc::new(NetworkDialer),
            plans: plans.clone(),
            remembered: Remembered::default(),
            applied,
            draining,
            health: Arc::default(),
            schedulers: Vec::new,
            link: sender,
        };
        let receives = runtime.spawn(receiver.run()).abort_handle();
        let agent = Agent {
            plans,
            link,
            failing: Arc::new(fails.into()),
            held: Arc::default(),
            dislike: Arc::default(),
            taken: Arc::default(),
            receives,
        };
        let (plans, fails, holds) = (
            agent.plans.clone(),
            agent.failing.clone(),
            agent.held.clone(),
        );
        let (dislike, history) = (agent.dislike.clone(), agent.taken.clone());
        std::thread::Builder::new()
            .name(format!("{node} takes"))
            .spawn(move || {
                take(&plans, &fails, &holds, &dislike, &history, &done);
                // Nothing ever drains, but the sender has to live until `take` returns, or the
                // receiver would see a closed channel.
                drop(drains);
            })?;
        self.agents.insert(node, agent);
        Ok(())
    }

    /// Ends a node's agent.
    pub fn remove(&mut self, node: &str) {
        drop(self.agents.remove(node));
    }

    /// The hash of a node's plan; `None` before it has one.
    #[must_use]
    pub fn hash(&self, node: &str) -> Option<PlanHash> {
        self.agents.get(node)?.plans.hash()
    }

    /// A node's plan in the printed form, without warnings, which are not on the stream.
    #[must_use]
    pub fn plan(&self, node: &str) -> Option<PlanDocument> {
        let plans = &self.agents.get(node)?.plans;
        plans.peek(|plan| PlanDocument::from_plan(plan, Vec::new()))
    }

    /// The IPv4 endpoints at which a node's plan serves the cluster IPs of a Service.
    #[must_use]
    pub fn endpoints(&self, node: &str, namespace: &str, name: &str) -> Vec<IpAddr> {
        let service = ServiceId::new(namespace, name);
        let found = self.agents.get(node).and_then(|agent| {
            agent.plans.peek(|plan| {
                let ports = plan.head(&service)?.ports.iter();
                let lists = ports
                    .filter_map(|port| plan.backends(&service, port, &port.internal, Family::Ipv4));
                let backends = lists.flat_map(|list| list.as_slice());
                Some(backends.map(|backend| backend.address).collect())
            })
        });
        found.unwrap_or_default()
    }

    /// The number of ports that a Service has in a node's plan; 0 if the plan does not have it.
    #[must_use]
    pub fn ports(&self, node: &str, namespace: &str, name: &str) -> usize {
        let service = ServiceId::new(namespace, name);
        let ports = self.agents.get(node).and_then(|agent| {
            let plans = &agent.plans;
            plans.peek(|plan| Some(plan.head(&service)?.ports.len()))
        });
        ports.unwrap_or_default()
    }

    /// Makes the node's agent fail to apply plans from now on, with [`FAILURE`], or apply them again, including the
    /// failed one.
    pub fn set_failing(&self, node: &str, fails: bool) {
        if let Some(agent) = self.agents.get(node) {
            agent.failing.store(fails, Ordering::Relaxed);
            agent.plans.disturb();
        }
    }

    /// From now on the node's agent is stuck with what it takes next, or goes on.
    pub fn hold(&self, node: &str, holds: bool) {
        if let Some(agent) = self.agents.get(node) {
            agent.held.store(holds, Ordering::Relaxed);
        }
    }

    /// From now on the agents of these nodes fail while this scheduler is in their settings. None of them has failed
    /// for it yet.
    pub fn dislike<'n>(&self, scheduler: &str, nodes: impl IntoIterator<Item = &'n str>) {
        for agent in nodes.into_iter().filter_map(|node| self.agents.get(node)) {
            *locked(&agent.dislike) = Dislike {
                scheduler: Some(scheduler.to_owned()),
                met: false,
            };
        }
    }

    /// The nodes whose agents have failed for that.
    pub fn disliked(&self) -> impl Iterator<Item = &str> {
        let met = self
            .agents
            .iter()
            .filter(|(_, agent)| locked(&agent.dislike).met);
        met.map(|(node, _)| node.as_str())
    }

    /// Forgets what agents took so far, but for what they have.
    pub fn begin_history(&self) {
        for agent in self.agents.values() {
            let hashes = &mut locked(&agent.taken).hashes;
            hashes.drain(..hashes.len().saturating_sub(1));
        }
    }

    /// The nodes whose agents applied a plan again after another one. If the cluster never returns to an earlier
    /// state, these agents went back to an older plan.
    pub fn went_back(&self) -> impl Iterator<Item = &str> {
        let back = self
            .agents
            .iter()
            .filter(|(_, agent)| locked(&agent.taken).went_back());
        back.map(|(node, _)| node.as_str())
    }

    /// The scheduler in the settings of a node; `None` before it has a plan.
    #[must_use]
    pub fn scheduler(&self, node: &str) -> Option<String> {
        scheduler(&self.agents.get(node)?.plans)
    }

    /// How the way of a node's agent to the controller is.
    #[must_use]
    pub fn link(&self, node: &str) -> Link {
        let link = self
            .agents
            .get(node)
            .map(|agent| agent.link.borrow().clone());
        link.unwrap_or_default()
    }

    /// Streams that all of them have opened since they were started.
    #[must_use]
    pub fn streams(&self) -> u64 {
        self.nodes().map(|node| self.link(node).streams).sum()
    }

    /// The names of their nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.agents.keys().map(String::as_str)
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn scheduler(plans: &PlanWatch) -> Option<String> {
    plans.peek(|plan| Some(plan.node()?.settings.scheduler.to_string()))
}

/// Reports every plan as in force or as failed.
fn take(
    plans: &PlanWatch,
    fails: &AtomicBool,
    holds: &AtomicBool,
    dislike: &Mutex<Dislike>,
    history: &Mutex<History>,
    done: &watch::Sender<Applied>,
) {
    let (mut generation, mut hash) = (0, PlanHash::default());
    loop {
        match plans.wait(LOOK) {
            Woken::Stopped => return,
            Woken::TimedOut => continue,
            Woken::Disturbed => drop(plans.take_disturbance()),
            Woken::Changed => {
                Taken {
                    generation,
                    hash,
                    ..
                } = plans.take();
                locked(history).note(hash);
            }
        }
        while holds.load(Ordering::Relaxed) {
            std::thread::sleep(STUCK);
        }
        let mut dislike = locked(dislike);
        let disliked = dislike.scheduler.is_some() && dislike.scheduler == scheduler(plans);
        dislike.met |= disliked;
        drop(dislike);
        let applied = if disliked || fails.load(Ordering::Relaxed) {
            Applied {
                generation,
                hash: done.borrow().hash,
                failures: vec![FAILURE.into()],
                failed: 1,
                ..Applied::default()
            }
        } else {
            Applied {
                generation,
                hash,
                ..Applied::default()
            }
        };
        done.send_replace(applied);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.held.store(false, Ordering::Relaxed);
        self.plans.stop();
        self.receives.abort();
    }
}

impl Drop for LightAgents {
    fn drop(&mut self) {
        self.agents.clear();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_a_plan_again_after_another_has_gone_back() {
        let went_back = |hashes: &[u128]| {
            let mut history = History::default();
            hashes.iter().for_each(|hash| history.note(PlanHash(*hash)));
            history.went_back()
        };
        assert!(!went_back(&[]) && !went_back(&[1, 1, 2, 2, 3]));
        assert!(went_back(&[1, 2, 1]) && went_back(&[1, 2, 2, 3, 2]));
    }
}
