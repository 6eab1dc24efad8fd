//! Events of Kubernetes: what `kubectl describe` shows of a Node, a Service or the ProxyConfig.
//!
//! Told where a condition that is stored changes, so a controller that starts anew repeats nothing.
//! Whoever tells never waits and is never refused: events that come too fast are counted and left out
//! (`limit`), because what they say stands in a status as well. Touches: the API server.

mod limit;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use portolan_plan::ServiceId;
use tokio::sync::mpsc;

pub use writer::Writer;

/// Events that wait to be written.
const QUEUE: usize = 64;

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

/// Whether somebody should look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// It is as it should be.
    Normal,
    /// Something is wrong.
    Warning,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// To what.
    pub about: About,
    /// How grave it is.
    pub severity: Severity,
    /// Why, as one word.
    pub reason: String,
    /// What the controller was doing, as one word.
    pub action: &'static str,
    /// For people.
    pub note: String,
}

/// Where events are told.
#[derive(Debug, Clone, Default)]
pub struct Events {
    queue: Option<mpsc::Sender<(SystemTime, Event)>>,
    lost: Arc<AtomicU64>,
}

impl Events {
    /// Events for a writer, which is to be run; without one nobody hears them.
    pub fn new(client: kube::Client, instance: &str) -> (Self, Writer) {
        let (queue, told) = mpsc::channel(QUEUE);
        let events = Self {
            queue: Some(queue),
            lost: Arc::default(),
        };
        let writer = Writer::new(client, instance, told, events.lost.clone());
        (events, writer)
    }

    /// Something happened now.
    pub fn tell(&self, event: Event) {
        let Some(queue) = &self.queue else { return };
        if queue.try_send((SystemTime::now(), event)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}
