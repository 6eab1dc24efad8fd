//! The task that keeps the stored objects up to date. The reconcilers decide, the calls execute.
//!
//! Accesses: the API server, through `calls`, and the clock.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::stream::{FuturesUnordered, StreamExt as _};
use kube::Client;
use tokio::time::{Instant, sleep_until};
use tracing::info;

use super::calls::Calls;
use super::reconcilers::{Now, Reconcilers, Step};
use super::updates::{Inbox, UpdateSender};
use crate::agent_registry::AgentRegistry;
use crate::cluster_state::Shared;
use crate::events::Events;
use crate::leading::Leading;

/// Maximum number of concurrent calls to the API server.
const MAX_CONCURRENT_CALLS: usize = 16;
/// Time for which updates are collected before they are processed. In a large cluster, agents send thousands of
/// reports per second.
const GATHER_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum number of targets processed before calls and updates get their turn.
const MAX_CONSECUTIVE_TARGETS: usize = 32;
/// Maximum wait if nothing is due.
const MAX_IDLE_WAIT: Duration = Duration::from_secs(3600);

/// Writes ProxyPlans, ProxyPlanSlices and the status of the ProxyConfig.
pub struct Publisher {
    reconcilers: Reconcilers,
    calls: Calls,
    registry: Arc<AgentRegistry>,
    inbox: Arc<Inbox>,
    start: Instant,
    wall: fn() -> SystemTime,
    leading: Leading,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").finish_non_exhaustive()
    }
}

impl Publisher {
    /// Creates the publisher of the plans in `shared` and of the agent reports in `registry`. The engine sends changes
    /// through the returned [`UpdateSender`].
    pub fn new(
        client: Client,
        shared: Shared,
        registry: Arc<AgentRegistry>,
    ) -> (Self, UpdateSender) {
        Self::with_clock(client, shared, registry, SystemTime::now)
    }

    /// Like [`Self::new`], with another wall clock.
    pub fn with_clock(
        client: Client,
        shared: Shared,
        registry: Arc<AgentRegistry>,
        wall: fn() -> SystemTime,
    ) -> (Self, UpdateSender) {
        let inbox = Arc::new(Inbox::default());
        let publisher = Self {
            reconcilers: Reconcilers::new(shared, registry.clone()),
            calls: Calls::new(client),
            registry,
            inbox: inbox.clone(),
            start: Instant::now(),
            wall,
            leading: Leading::alone(),
        };
        (publisher, UpdateSender::new(inbox, wall))
    }

    /// Writes plans, slices and the ProxyConfig only while this controller leads. Statuses are always written.
    #[must_use]
    pub fn while_leading(mut self, leading: Leading) -> Self {
        self.leading = leading;
        self.lead(self.leading.now());
        self
    }

    /// Records changes as events.
    #[must_use]
    pub fn with_events(mut self, events: Events) -> Self {
        self.reconcilers.record_events(events);
        self
    }

    /// Publishes until `end` completes. Calls in progress are then abandoned; the next publisher reads their outcome
    /// from the API server.
    pub async fn run(self, end: impl Future<Output = ()>) {
        tokio::select! {
            () = self.publish() => {}
            () = end => info!("publishing ended"),
        }
    }

    async fn publish(mut self) {
        let mut under_way = FuturesUnordered::new();
        let mut gathered = self.start;
        loop {
            let mut wake = MAX_IDLE_WAIT;
            if self.reconcilers.leads() && !self.leading.now() {
                self.lead(false);
            }
            for _ in 0..MAX_CONSECUTIVE_TARGETS {
                wake = Duration::ZERO;
                if under_way.len() == MAX_CONCURRENT_CALLS {
                    wake = MAX_IDLE_WAIT;
                    break;
                }
                let now = self.now();
                match self.reconcilers.next(now) {
                    Step::Call(call) => {
                        let leading = self.leading.clone();
                        under_way.push(self.calls.clone().make(call, leading));
                    }
                    Step::Again => {}
                    Step::Wait(until) => {
                        let until = until.unwrap_or(now.elapsed + MAX_IDLE_WAIT);
                        wake = until
                            .saturating_sub(now.elapsed)
                            .max(Duration::from_millis(1));
                        break;
                    }
                }
            }
            let wake = Instant::now() + wake;
            tokio::select! {
                Some((call, outcome)) = under_way.next() => {
                    let now = self.now();
                    self.reconcilers.done(&call, outcome, now);
                }
                updates = after(gathered, self.inbox.next()) => {
                    gathered = Instant::now() + GATHER_INTERVAL;
                    let now = self.now();
                    self.reconcilers.planned(updates, now);
                }
                nodes = after(gathered, self.registry.changes()) => {
                    gathered = Instant::now() + GATHER_INTERVAL;
                    let now = self.now();
                    self.reconcilers.reported(nodes, now);
                }
                () = turns(&mut self.leading, self.reconcilers.leads()) => {
                    self.lead(!self.reconcilers.leads());
                }
                () = sleep_until(wake) => {}
            }
        }
    }

    fn lead(&mut self, leads: bool) {
        let now = self.now();
        self.reconcilers.lead(leads, now);
    }

    fn now(&self) -> Now {
        Now {
            elapsed: self.start.elapsed(),
            wall: (self.wall)(),
        }
    }
}

/// Waits until this controller begins to lead, or stops.
async fn turns(leading: &mut Leading, leads: bool) {
    if leads {
        leading.ends().await;
    } else if !leading.begins().await {
        // The election has ended: it never leads again.
        std::future::pending::<()>().await;
    }
}

/// Delays a future until `time`.
async fn after<T>(time: Instant, what: impl Future<Output = T>) -> T {
    sleep_until(time).await;
    what.await
}
