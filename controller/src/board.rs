//! What agents said: connected, acknowledged, gone. Streams write it, whoever publishes reads it.
//!
//! Cheap enough for every acknowledgement of 5,000 agents: one lock held for a map look-up. It holds
//! nothing of the plans, and for each node only the last word.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use portolan_plan::PlanHash;
use tokio::sync::Notify;

/// How many failures and unreadable entries are remembered for a node: as many as are shown.
pub const REMEMBERED: usize = portolan_crds::limit::FAILURES;

/// The answer of an agent to a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acked {
    /// The hash of what is in the kernel; `None` when the agent did not say.
    pub applied: Option<PlanHash>,
    /// The hash of what was received.
    pub received: PlanHash,
    /// From the making of the batch to this answer.
    pub lag: Duration,
    /// Kernel operations made.
    pub operations: u64,
    /// What failed, in words: the first [`REMEMBERED`].
    pub failures: Vec<String>,
    /// Operations that failed in all.
    pub failed_operations: u64,
    /// Keys of entries that the agent cannot read: the first [`REMEMBERED`].
    pub undecodable: Vec<String>,
}

/// What an agent found otherwise than it had left it in the kernel, of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drift {
    /// The kind, in the agent's words.
    pub kind: Arc<str>,
    /// How many were found since the agent started.
    pub found: u64,
    /// How many of them were put right.
    pub repaired: u64,
    /// How many are otherwise now.
    pub standing: u64,
}

/// The version of the plans that is in force on a node, wholly; 0 while none is known to be. Whoever
/// serves the node writes it, without a lock: every stream does at every change.
#[derive(Debug, Clone, Default)]
pub struct InForce(Arc<AtomicU64>);

impl InForce {
    /// All of the plan of this version is in force.
    pub fn reached(&self, version: u64) {
        self.0.store(version, Ordering::Release);
    }

    /// The version; 0 for none.
    pub fn version(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl PartialEq for InForce {
    fn eq(&self, other: &Self) -> bool {
        self.version() == other.version()
    }
}

impl Eq for InForce {}

/// What is known of the agent on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The version of the agent program.
    pub agent_version: Arc<str>,
    /// The name of the pod that it runs in, by its token; `None` where tokens are not asked for.
    pub agent_pod: Option<Arc<str>>,
    /// Whether its stream is open here.
    pub connected: bool,
    /// Since when its stream is open, or closed.
    pub since: SystemTime,
    /// Its last answer and when it came; kept when the stream ends.
    pub acked: Option<(SystemTime, Arc<Acked>)>,
    /// Since when it has a batch that it should have answered long ago.
    pub overdue: Option<SystemTime>,
    /// What somebody else changed in the kernel, of each kind that ever was; `None` while the agent
    /// has not told.
    pub drifted: Option<Arc<[Drift]>>,
    /// Ports on which the agent should answer and cannot, in words: the first [`REMEMBERED`].
    pub closed_ports: Arc<[String]>,
    /// Kernel settings that the agent may not write, in words: the first [`REMEMBERED`].
    pub unwritten_settings: Arc<[String]>,
    /// What is in force on it; nothing of an earlier stream counts.
    pub in_force: InForce,
}

/// What agents said last, by node.
#[derive(Debug, Default)]
pub struct Board {
    nodes: Mutex<Nodes>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Nodes {
    deliveries: BTreeMap<Arc<str>, Delivery>,
    /// Nodes with news since the last look.
    changed: BTreeSet<Arc<str>>,
}

impl Board {
    /// The agent of a node opened its stream. What it said before does not count any more: it may
    /// have been restarted. A stream that follows another without an end in between replaces it.
    ///
    /// What is in force there is written into what comes back.
    pub fn connected(
        &self,
        node: &str,
        agent_version: &str,
        agent_pod: Option<&str>,
        now: SystemTime,
    ) -> InForce {
        let in_force = InForce::default();
        let mut nodes = self.nodes();
        let node: Arc<str> = node.into();
        let delivery = Delivery {
            agent_version: agent_version.into(),
            agent_pod: agent_pod.map(Arc::from),
            connected: true,
            since: now,
            acked: None,
            overdue: None,
            drifted: None,
            closed_ports: Arc::default(),
            unwritten_settings: Arc::default(),
            in_force: in_force.clone(),
        };
        nodes.deliveries.insert(node.clone(), delivery);
        self.news(nodes, node);
        in_force
    }

    /// The agent of a node answered a batch. Without a stream there is no answer: then nothing
    /// happens.
    pub fn acked(&self, node: &str, mut acked: Acked, now: SystemTime) {
        acked.failures.truncate(REMEMBERED);
        acked.undecodable.truncate(REMEMBERED);
        self.update(node, |delivery| {
            delivery.acked = Some((now, Arc::new(acked)));
            delivery.overdue = None;
        });
    }

    /// All of the plan that the agent of a node received is in force now, which it was not at its answer.
    pub fn caught_up(&self, node: &str, now: SystemTime) {
        self.update(node, |delivery| {
            if let Some((at, acked)) = &mut delivery.acked {
                let received = acked.received;
                // It is about the same batch, which is as old as it is.
                let later = now.duration_since(*at).unwrap_or_default();
                *at = now;
                *acked = Arc::new(Acked {
                    lag: acked.lag + later,
                    applied: Some(received),
                    failures: Vec::new(),
                    failed_operations: 0,
                    ..Acked::clone(acked)
                });
            }
        });
    }

    /// The agent of a node has not answered a batch that was sent then.
    pub fn overdue(&self, node: &str, sent: SystemTime) {
        self.update(node, |delivery| delivery.overdue = Some(sent));
    }

    /// The agent of a node told what somebody else changed in the kernel since it started.
    pub fn drifted(&self, node: &str, drift: Vec<Drift>) {
        self.update(node, |delivery| delivery.drifted = Some(drift.into()));
    }

    /// The agent of a node told on which ports it cannot listen.
    pub fn closed_ports(&self, node: &str, mut closed: Vec<String>) {
        closed.truncate(REMEMBERED);
        let closed: Arc<[String]> = closed.into();
        self.update(node, |delivery| delivery.closed_ports = closed);
    }

    /// The agent of a node told which kernel settings it may not write.
    pub fn unwritten_settings(&self, node: &str, mut unwritten: Vec<String>) {
        unwritten.truncate(REMEMBERED);
        let unwritten: Arc<[String]> = unwritten.into();
        self.update(node, |delivery| delivery.unwritten_settings = unwritten);
    }

    /// The stream of a node ended. Only the stream that was `connected` at `since` can end: an older
    /// one that is noticed late takes nothing away from its successor.
    pub fn gone(&self, node: &str, since: SystemTime, now: SystemTime) {
        self.update(node, |delivery| {
            if delivery.connected && delivery.since == since {
                delivery.connected = false;
                delivery.since = now;
            }
        });
    }

    /// Forgets agents that are gone from nodes that are gone.
    pub fn forget_except(&self, is_node: impl Fn(&str) -> bool) {
        let keep = |node: &Arc<str>, delivery: &mut Delivery| delivery.connected || is_node(node);
        self.nodes().deliveries.retain(keep);
    }

    /// How many agents have their stream open here.
    pub fn connected_agents(&self) -> usize {
        let nodes = self.nodes();
        let open = nodes.deliveries.values().filter(|of| of.connected);
        open.count()
    }

    /// How many nodes whose stream is open here have a version of the plans in force, and how many have not.
    pub fn convergence(&self, version: u64, is_node: impl Fn(&str) -> bool) -> (usize, usize) {
        let nodes = self.nodes();
        let (mut in_force, mut behind) = (0, 0);
        for (node, delivery) in &nodes.deliveries {
            if !(delivery.connected && is_node(node)) {
                continue;
            }
            if delivery.in_force.version() >= version {
                in_force += 1;
            } else {
                behind += 1;
            }
        }
        (in_force, behind)
    }

    /// How many agents have not a version of the plans in force yet, and the first few of their nodes. Who
    /// answered last that something failed or cannot be read is not waited for, because that may last for
    /// ever; nor who has answered nothing yet, for a first plan is no change.
    pub fn waited_for(
        &self,
        version: u64,
        is_node: impl Fn(&str) -> bool,
    ) -> (usize, Vec<Arc<str>>) {
        let nodes = self.nodes();
        let waited = nodes.deliveries.iter().filter(|(node, delivery)| {
            let answered = delivery.acked.as_ref();
            let sound = answered.is_some_and(|(_, acked)| {
                acked.failed_operations == 0 && acked.undecodable.is_empty()
            });
            let behind = sound && delivery.in_force.version() < version;
            delivery.connected && behind && is_node(node)
        });
        let (mut count, mut first) = (0, Vec::new());
        for (node, _) in waited {
            count += 1;
            if first.len() < REMEMBERED {
                first.push(node.clone());
            }
        }
        (count, first)
    }

    /// What is known of all agents that ever connected here.
    pub fn all(&self) -> BTreeMap<Arc<str>, Delivery> {
        self.nodes().deliveries.clone()
    }

    /// What is known of the agent on a node; `None` while it never connected here.
    pub fn get(&self, node: &str) -> Option<Delivery> {
        self.nodes().deliveries.get(node).cloned()
    }

    /// Waits until some node has news, and takes their names; each is told once. For one reader: two
    /// would take the names from each other.
    pub async fn changes(&self) -> BTreeSet<Arc<str>> {
        loop {
            let changed = std::mem::take(&mut self.nodes().changed);
            if !changed.is_empty() {
                return changed;
            }
            self.changed.notified().await;
        }
    }

    fn update(&self, node: &str, change: impl FnOnce(&mut Delivery)) {
        let mut nodes = self.nodes();
        let Some((name, _)) = nodes.deliveries.get_key_value(node) else {
            return;
        };
        let name = name.clone();
        if let Some(delivery) = nodes.deliveries.get_mut(node) {
            change(delivery);
        }
        self.news(nodes, name);
    }

    fn news(&self, mut nodes: MutexGuard<'_, Nodes>, node: Arc<str>) {
        nodes.changed.insert(node);
        drop(nodes);
        self.changed.notify_one();
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
