//! The state of each agent: connected, acknowledged, gone. Streams write it; status and metrics read it.
//!
//! An update holds one lock for a map look-up, which is cheap enough for every acknowledgement of 5,000 agents.
//! The registry keeps only the last state of each node, and no plans.

// With its path, because `e2e/schedules` includes this file in another folder.
#[path = "agent_registry/counts.rs"]
mod counts;
#[path = "agent_registry/in_force.rs"]
mod in_force;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use portolan_plan::{EntryKey, PlanHash, ServiceId};
use tokio::sync::oneshot;

pub use in_force::InForce;

use crate::sync::{Mutex, MutexGuard, Notify};
use crate::troubled::Troubled;

/// Maximum number of items in each list that is kept for a node, such as failures and unreadable entries: as many as
/// its status shows.
pub const MAX_LISTED_ITEMS: usize = portolan_crds::limit::FAILURES;

/// An agent's acknowledgement of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acked {
    /// Hash of the plan in the kernel; `None` if the agent did not report one.
    pub applied: Option<PlanHash>,
    /// Hash of the plan that the agent received.
    pub received: PlanHash,
    /// Time from building the batch to this answer.
    pub lag: Duration,
    /// Number of kernel operations.
    pub operations: u64,
    /// Failure messages: the first [`MAX_LISTED_ITEMS`].
    pub failures: Vec<String>,
    /// Total number of failed operations.
    pub failed_operations: u64,
    /// Keys of entries that the agent cannot decode: the first [`MAX_LISTED_ITEMS`].
    pub undecodable: Vec<String>,
}

impl Acked {
    /// The first entry that the agent cannot decode and that belongs to no Service. Those of Services are reported with
    /// their Services.
    pub fn unreadable(&self) -> Option<&str> {
        let is_of_the_node = |key: &&String| EntryKey::from_peer(key).service().is_none();
        let mut keys = self.undecodable.iter();
        keys.find(is_of_the_node).map(String::as_str)
    }
}

/// Kernel objects of one kind that something other than the agent changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drift {
    /// The kind, as the agent names it.
    pub kind: Arc<str>,
    /// Number found since the agent started.
    pub found: u64,
    /// Number of them that the agent repaired.
    pub repaired: u64,
    /// Number that differ now.
    pub unrepaired: u64,
}

/// The state of the agent on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The version of the agent program.
    pub agent_version: Arc<str>,
    /// The name of the agent's pod, from its token; `None` if tokens are not required.
    pub agent_pod: Option<Arc<str>>,
    /// Its last stream to this controller.
    pub stream: StreamId,
    /// Whether that stream is open.
    pub connected: bool,
    /// When its stream was opened or closed.
    pub since: SystemTime,
    /// Its last answer and the time of that; kept after the stream ends.
    pub acked: Option<(SystemTime, Arc<Acked>)>,
    /// When the batch was sent whose answer is overdue.
    pub overdue: Option<SystemTime>,
    /// Kernel drift for each kind in which it occurred; `None` until the agent reports it.
    pub drifted: Option<Arc<[Drift]>>,
    /// Ports that the agent should serve but cannot listen on, as text: the first [`MAX_LISTED_ITEMS`].
    pub closed_ports: Arc<[String]>,
    /// Kernel settings that the agent may not write, as text: the first [`MAX_LISTED_ITEMS`].
    pub unwritten_settings: Arc<[String]>,
    /// The schedulers that its kernel had loaded when the stream was opened: at most 32.
    pub schedulers: Arc<[String]>,
    /// The Services that are an exception to `in_force`; `None` until the agent reports.
    pub troubled: Option<Arc<Troubled>>,
    /// The version in force; versions of earlier streams do not count.
    pub in_force: InForce,
}

/// Identifies a stream of a controller. Times do not: two streams of a node may be opened at the same time of a clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u64);

/// A stream on the registry.
#[derive(Debug)]
pub struct Registered {
    /// The stream.
    pub id: StreamId,
    /// The version in force, which the stream writes.
    pub in_force: InForce,
    /// Ends when a newer stream of the node is registered: a node has one stream.
    pub replaced: oneshot::Receiver<Infallible>,
}

impl Delivery {
    /// Whether a Service is not in force although the plan may be.
    pub fn fails(&self, service: &ServiceId) -> bool {
        let troubled = self.troubled.as_ref();
        troubled.is_some_and(|troubled| troubled.failing.contains(service))
    }

    /// Number of Services that are not in force.
    pub fn failing_services(&self) -> u32 {
        let troubled = self.troubled.as_ref();
        troubled.map_or(0, |troubled| troubled.failing_services)
    }

    /// A copy that does not change. To be made while the lock is held: exceptions are recorded before the version to
    /// which they belong, so with that version it has its exceptions.
    fn frozen(&self) -> Self {
        Self {
            in_force: self.in_force.frozen(),
            ..self.clone()
        }
    }
}

/// The last state of each agent, by node.
#[derive(Debug, Default)]
pub struct AgentRegistry {
    nodes: Mutex<Nodes>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Nodes {
    deliveries: BTreeMap<Arc<str>, Delivery>,
    /// The open stream of each node, and its sender, which is dropped to end it.
    streams: BTreeMap<Arc<str>, (StreamId, oneshot::Sender<Infallible>)>,
    /// Number of streams so far.
    opened: u64,
    /// Nodes that changed since the last call of [`AgentRegistry::changes`].
    changed: BTreeSet<Arc<str>>,
}

impl AgentRegistry {
    /// Records that the agent of a node opened a stream. This discards its earlier state, because it may have
    /// restarted. An open stream of the node is replaced: [`Registered::replaced`] of that stream ends.
    pub fn connected(
        &self,
        node: &str,
        agent_version: &str,
        agent_pod: Option<&str>,
        now: SystemTime,
    ) -> Registered {
        let in_force = InForce::default();
        let (stays, replaced) = oneshot::channel();
        let mut nodes = self.nodes();
        let node: Arc<str> = node.into();
        nodes.opened += 1;
        let id = StreamId(nodes.opened);
        let delivery = Delivery {
            agent_version: agent_version.into(),
            agent_pod: agent_pod.map(Arc::from),
            stream: id,
            connected: true,
            since: now,
            acked: None,
            overdue: None,
            drifted: None,
            closed_ports: Arc::default(),
            unwritten_settings: Arc::default(),
            schedulers: Arc::default(),
            troubled: None,
            in_force: in_force.clone(),
        };
        nodes.deliveries.insert(node.clone(), delivery);
        nodes.streams.insert(node.clone(), (id, stays));
        self.news(nodes, node);
        Registered {
            id,
            in_force,
            replaced,
        }
    }

    /// Records that the agent of a node answered a batch. Ignored for a node that never opened a stream.
    pub fn acked(&self, node: &str, mut acked: Acked, now: SystemTime) {
        acked.failures.truncate(MAX_LISTED_ITEMS);
        acked.undecodable.truncate(MAX_LISTED_ITEMS);
        self.update(node, |delivery| {
            delivery.acked = Some((now, Arc::new(acked)));
            delivery.overdue = None;
        });
    }

    /// Records that a plan which was not completely in force when the agent answered is in force now.
    pub fn caught_up(&self, node: &str, now: SystemTime) {
        self.update(node, |delivery| {
            if let Some((at, acked)) = &mut delivery.acked {
                let received = acked.received;
                // The batch is the same, so its lag grows by the time since the answer.
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

    /// Records that the agent of a node has not answered the batch of time `sent`.
    pub fn overdue(&self, node: &str, sent: SystemTime) {
        self.update(node, |delivery| delivery.overdue = Some(sent));
    }

    /// Records the kernel drift that the agent of a node found since it started.
    pub fn drifted(&self, node: &str, drift: Vec<Drift>) {
        self.update(node, |delivery| delivery.drifted = Some(drift.into()));
    }

    /// Records the ports on which the agent of a node cannot listen.
    pub fn closed_ports(&self, node: &str, mut closed: Vec<String>) {
        closed.truncate(MAX_LISTED_ITEMS);
        let closed: Arc<[String]> = closed.into();
        self.update(node, |delivery| delivery.closed_ports = closed);
    }

    /// Records the kernel settings that the agent of a node may not write.
    pub fn unwritten_settings(&self, node: &str, mut unwritten: Vec<String>) {
        unwritten.truncate(MAX_LISTED_ITEMS);
        let unwritten: Arc<[String]> = unwritten.into();
        self.update(node, |delivery| delivery.unwritten_settings = unwritten);
    }

    /// Records the schedulers that the kernel of a node has loaded.
    pub fn schedulers(&self, node: &str, schedulers: &[String]) {
        self.update(node, |delivery| delivery.schedulers = schedulers.into());
    }

    /// Records the Services that are not on a node as their objects ask. Call this before the plan that they belong to
    /// counts as in force.
    pub fn troubled(&self, node: &str, troubled: Troubled) {
        self.update(node, |delivery| {
            if delivery.troubled.as_deref() != Some(&troubled) {
                delivery.troubled = Some(Arc::new(troubled));
            }
        });
    }

    /// Records that a stream of a node ended. The late end of a replaced stream does not affect its successor, even if
    /// both were opened at the same time.
    pub fn gone(&self, node: &str, stream: StreamId, now: SystemTime) {
        let mut nodes = self.nodes();
        let is_open = |(open, _): &(StreamId, _)| *open == stream;
        if !nodes.streams.get(node).is_some_and(is_open) {
            return;
        }
        let Some((name, _)) = nodes.streams.remove_entry(node) else {
            return;
        };
        if let Some(delivery) = nodes.deliveries.get_mut(node) {
            delivery.connected = false;
            delivery.since = now;
        }
        self.news(nodes, name);
    }

    /// Removes disconnected agents whose nodes no longer exist.
    pub fn forget_except(&self, is_node: impl Fn(&str) -> bool) {
        let keep = |node: &Arc<str>, delivery: &mut Delivery| delivery.connected || is_node(node);
        self.nodes().deliveries.retain(keep);
    }

    /// The present state of all agents that ever connected to this controller.
    pub fn all(&self) -> BTreeMap<Arc<str>, Delivery> {
        let nodes = self.nodes();
        let all = nodes.deliveries.iter();
        all.map(|(node, delivery)| (node.clone(), delivery.frozen()))
            .collect()
    }

    /// The present state of the agent on a node; `None` if it never connected to this controller.
    pub fn get(&self, node: &str) -> Option<Delivery> {
        self.nodes().deliveries.get(node).map(Delivery::frozen)
    }

    /// Waits for changed nodes and removes their names from the set, so each is returned once per change. There
    /// must be only one reader: two would take names from each other.
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
#[path = "agent_registry_tests.rs"]
mod tests;
