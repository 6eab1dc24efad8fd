//! Events of Kubernetes: what `kubectl describe` shows of a Node, a Service or the ProxyConfig.
//!
//! Recorded when a stored condition changes, so a restarted controller repeats no event about a Node. Reports of agents
//! about Services are recorded when they arrive. Recording never waits and never fails: events above the rate limit
//! (`limit`) are counted and dropped, because a status contains the same information. Touches: the API server.

mod limit;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use portolan_plan::ServiceId;
use tokio::sync::mpsc;

pub use writer::Writer;

/// Capacity of the queue of events. Events that do not fit are dropped and counted.
const QUEUE_CAPACITY: usize = 64;

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// A Node.
    Node(Arc<str>),
    /// A Service.
    Service(ServiceId),
    /// The ProxyConfig `default`.
    ProxyConfig,
}

/// Whether an operator should look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// A normal event.
    Normal,
    /// A problem.
    Warning,
}

/// An event about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The object.
    pub about: About,
    /// The severity.
    pub severity: Severity,
    /// The reason, one word.
    pub reason: String,
    /// The controller's action, one word.
    pub action: &'static str,
    /// The message for people.
    pub note: String,
}

/// Records events.
#[derive(Debug, Clone, Default)]
pub struct Events {
    queue: Option<mpsc::Sender<(SystemTime, Event)>>,
    lost: Arc<AtomicU64>,
}

impl Events {
    /// Events and the task that writes them. Without a running writer, events are dropped.
    pub fn new(client: kube::Client, instance: &str) -> (Self, Writer) {
        let (queue, receiver) = mpsc::channel(QUEUE_CAPACITY);
        let events = Self {
            queue: Some(queue),
            lost: Arc::default(),
        };
        let writer = Writer::new(client, instance, receiver, events.lost.clone());
        (events, writer)
    }

    /// Records an event with the current time.
    pub fn record(&self, event: Event) {
        let Some(queue) = &self.queue else { return };
        if queue.try_send((SystemTime::now(), event)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}
