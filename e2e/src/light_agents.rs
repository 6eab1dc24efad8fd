//! Agents without a kernel: the real receiving end of the stream, which takes what it gets as
//! applied at once. Hundreds of them fit where one node would.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use portolan_agent::programmer::Applied;
use portolan_agent::receive::{Address, Receiver};
use portolan_agent::slot::{PlanSlot, Taken, Woken};
use portolan_plan::{PlanDocument, PlanHash};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Agents of these nodes; dropping them closes their streams.
#[derive(Debug)]
pub struct LightAgents {
    slots: BTreeMap<String, Arc<PlanSlot>>,
    /// In an option so that dropping can end its threads without waiting.
    runtime: Option<Runtime>,
}

/// How often a thread looks whether it is to end.
const LOOK: Duration = Duration::from_secs(3600);

impl LightAgents {
    /// Starts them; they connect to the controller's socket whenever it is there.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub fn start(socket: &Path, nodes: impl IntoIterator<Item = String>) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("agents")
            .enable_all()
            .build()
            .context("start the agents' threads")?;
        let mut slots = BTreeMap::new();
        for node in nodes {
            let slot = Arc::new(PlanSlot::default());
            let (done, applied) = watch::channel(Applied::default());
            let (drains, draining) = watch::channel(BTreeSet::new());
            let receiver = Receiver {
                node: node.as_str().into(),
                controller: Address::Unix(socket.to_owned()),
                slot: slot.clone(),
                applied,
                draining,
                health: Arc::default(),
            };
            drop(runtime.spawn(receiver.run()));
            let taken = slot.clone();
            std::thread::Builder::new()
                .name(format!("{node} takes"))
                .spawn(move || {
                    take(&taken, &done);
                    // Nothing ever drains, and the receiver may not find that nobody could tell it.
                    drop(drains);
                })?;
            slots.insert(node, slot);
        }
        Ok(Self {
            slots,
            runtime: Some(runtime),
        })
    }

    /// The hash of a node's plan; `None` before it has one.
    #[must_use]
    pub fn hash(&self, node: &str) -> Option<PlanHash> {
        self.slots.get(node)?.hash()
    }

    /// A node's plan as everybody prints it, without warnings: they are not on the stream.
    #[must_use]
    pub fn plan(&self, node: &str) -> Option<PlanDocument> {
        let slot = self.slots.get(node)?;
        slot.peek(|plan| PlanDocument::from_plan(plan, Vec::new()))
    }

    /// The names of their nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.slots.keys().map(String::as_str)
    }
}

/// Says of every plan that it is in force.
fn take(slot: &PlanSlot, done: &watch::Sender<Applied>) {
    loop {
        match slot.wait(LOOK) {
            Woken::Stopped => return,
            Woken::TimedOut | Woken::Disturbed => {}
            Woken::Changed => {
                let Taken {
                    generation, hash, ..
                } = slot.take();
                done.send_replace(Applied {
                    generation,
                    hash,
                    ..Applied::default()
                });
            }
        }
    }
}

impl Drop for LightAgents {
    fn drop(&mut self) {
        for slot in self.slots.values() {
            slot.stop();
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
