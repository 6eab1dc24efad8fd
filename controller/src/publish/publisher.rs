//! The task that keeps the objects in the store up to date. The reconcilers decide what to do, the calls do it.
//!
//! Touches: the API server, by its calls, and the clock.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::stream::{FuturesUnordered, StreamExt as _};
use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::info;

use super::calls::Calls;
use super::notes::{Inbox, Notes};
use super::reconcilers::{Now, Reconcilers, Step};
use crate::board::Board;
use crate::events::Events;
use crate::known::Shared;

/// Calls under way at once.
const TOGETHER: usize = 16;
/// How long news are gathered before they are looked at: agents of a large cluster answer thousands
/// of times a second.
const GATHER: Duration = Duration::from_millis(250);
/// Things that are looked at in a row before others of the process have their turn.
const IN_A_ROW: usize = 32;
/// When to look again where nothing is due.
const IDLE: Duration = Duration::from_secs(3600);

/// Writes ProxyPlans, ProxyPlanSlices and the status of the ProxyConfig.
pub struct Publisher {
    reconcilers: Reconcilers,
    calls: Calls,
    board: Arc<Board>,
    inbox: Arc<Inbox>,
    start: Instant,
    wall: fn() -> SystemTime,
    /// Whether this controller leads; `None` where it is the only one.
    leading: Option<watch::Receiver<bool>>,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").finish_non_exhaustive()
    }
}

impl Publisher {
    /// Publishes what is known and what agents said; told of changes by the notes.
    pub fn new(client: Client, shared: Shared, board: Arc<Board>) -> (Self, Notes) {
        Self::with_clock(client, shared, board, SystemTime::now)
    }

    /// The same with another clock on the wall.
    pub fn with_clock(
        client: Client,
        shared: Shared,
        board: Arc<Board>,
        wall: fn() -> SystemTime,
    ) -> (Self, Notes) {
        let inbox = Arc::new(Inbox::default());
        let publisher = Self {
            reconcilers: Reconcilers::new(shared, board.clone()),
            calls: Calls::new(client),
            board,
            inbox: inbox.clone(),
            start: Instant::now(),
            wall,
            leading: None,
        };
        (publisher, Notes::new(inbox, wall))
    }

    /// Writes what only one controller may write while this says so; statuses always.
    #[must_use]
    pub fn while_leading(mut self, leading: watch::Receiver<bool>) -> Self {
        let leads = *leading.borrow();
        self.reconcilers.lead(leads, self.now());
        self.leading = Some(leading);
        self
    }

    /// Tells what changes as events.
    #[must_use]
    pub fn telling(mut self, events: Events) -> Self {
        self.reconcilers.record_events(events);
        self
    }

    /// Publishes until `end` is done. Calls under way are then left to themselves: whoever publishes
    /// next reads what came of them.
    pub async fn run(self, end: impl Future<Output = ()>) {
        tokio::select! {
            () = self.publish() => {}
            () = end => info!("nothing more is published"),
        }
    }

    async fn publish(mut self) {
        let mut under_way = FuturesUnordered::new();
        let mut gathered = self.start;
        loop {
            let mut wake = IDLE;
            for _ in 0..IN_A_ROW {
                wake = Duration::ZERO;
                if under_way.len() == TOGETHER {
                    wake = IDLE;
                    break;
                }
                let now = self.now();
                match self.reconcilers.next(now) {
                    Step::Call(call) => under_way.push(self.calls.clone().make(call)),
                    Step::Again => {}
                    Step::Wait(until) => {
                        let until = until.unwrap_or(now.elapsed + IDLE);
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
                told = after(gathered, self.inbox.news()) => {
                    gathered = Instant::now() + GATHER;
                    let now = self.now();
                    self.reconcilers.planned(told, now);
                }
                nodes = after(gathered, self.board.changes()) => {
                    gathered = Instant::now() + GATHER;
                    let now = self.now();
                    self.reconcilers.reported(nodes, now);
                }
                leads = led(&mut self.leading) => {
                    let now = self.now();
                    self.reconcilers.lead(leads, now);
                }
                () = sleep_until(wake) => {}
            }
        }
    }

    fn now(&self) -> Now {
        Now {
            elapsed: self.start.elapsed(),
            wall: (self.wall)(),
        }
    }
}

/// Whether this controller leads, once that changes.
async fn led(leading: &mut Option<watch::Receiver<bool>>) -> bool {
    let Some(leading) = leading else {
        return std::future::pending().await;
    };
    match leading.changed().await {
        Ok(()) => *leading.borrow_and_update(),
        // Nobody decides any more; what was decided last stays.
        Err(_) => std::future::pending().await,
    }
}

/// Not before a time.
async fn after<T>(time: Instant, what: impl Future<Output = T>) -> T {
    sleep_until(time).await;
    what.await
}
