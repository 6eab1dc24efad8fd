//! The stream from the controller: keeps the current plan up to date until the program ends, and reconnects
//! after every failure.
//!
//! Touches: the network.

mod access;
mod address;
mod controllers;
mod dialer;
#[cfg(test)]
mod fuzz;
mod link;
mod opened;
mod returning;
mod search;
mod session;
mod status;
mod tls;
mod token;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_proto::{STALE_AFTER, wire};
use tokio::sync::watch;
use tracing::{info, warn};

use self::opened::Opened;
use self::returning::Return;
use self::search::{Attempt, Search};
use self::status::{StatusReporter, report, send};
use self::token::Renewals;
pub use access::{Access, AccessError, Tls, Trust};
pub use address::{Address, AddressError};
pub use controllers::{Addresses, Controllers, ControllersError};
pub use dialer::{Connection, Dialer, NetworkDialer, RequestError};
pub use link::{Link, LinkSender, Outdated};
pub use session::{Cause, Commit, Session, SessionError, Step};
pub use tls::TlsError;

use crate::health::{Changes, Health};
use crate::plan_watch::PlanWatch;
use crate::programmer::Applied;
use crate::watermark::Remembered;

/// Initial delay before a reconnect; it doubles up to [`MAX_BACKOFF`].
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// The attempt from which on the delay does not grow.
const LAST_DOUBLING: u32 = 16;

/// Interval of HTTP/2 keep-alive pings on an idle connection.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);

/// Capacity of the queue of outgoing messages; one batch is in flight, so few are needed.
const QUEUE_CAPACITY: usize = 4;

/// Keeps the plan of one node current.
#[derive(Debug)]
pub struct Receiver {
    /// The node's name.
    pub node: Arc<str>,
    /// The version of the program, shown in the node's ProxyPlan.
    pub version: Arc<str>,
    /// Addresses and credentials for the controllers.
    pub controllers: Controllers,
    /// Opens connections to them.
    pub dialer: Arc<dyn Dialer>,
    /// Destination of the plan.
    pub plans: Arc<PlanWatch>,
    /// The watermark of the plan.
    pub remembered: Remembered,
    /// Results of passes.
    pub applied: watch::Receiver<Applied>,
    /// Addresses of draining backends.
    pub draining: watch::Receiver<BTreeSet<IpAddr>>,
    /// Health of the node.
    pub health: Arc<Health>,
    /// Returns the schedulers that the kernel has loaded.
    pub schedulers: fn() -> Vec<String>,
    /// Publishes the state of the connection to the controller.
    pub link: LinkSender,
}

impl Receiver {
    /// Runs while the programmer runs: connects, follows the stream until it ends, waits, and connects again.
    pub async fn run(mut self) {
        let (mut attempt, mut stream) = (0u32, 0);
        let mut fresher = None;
        loop {
            let before = self.applied.borrow().generation;
            let end = match fresher.take() {
                Some(opened) => self.follow(opened).await,
                None => self.connect(stream).await,
            };
            let is_replaced = end.as_ref().is_err_and(StreamError::is_replaced);
            let reason = match end {
                // Its stream is open already.
                Ok(Some(opened)) => {
                    let first = self.controllers.first(&self.node, &opened.controller);
                    stream = if first.is_none() { 0 } else { stream };
                    fresher = Some(opened);
                    attempt = 0;
                    continue;
                }
                // The programmer has ended, so the program has to end.
                Err(StreamError::Ending) => return,
                Ok(None) => "the stream ended".into(),
                Err(error) => error.to_string(),
            };
            // Try the next controller: this one may be shutting down, and all serve the same plan.
            stream = stream.wrapping_add(1);
            // After a stream that delivered a change, start again with short delays.
            if self.applied.borrow().generation != before {
                attempt = 0;
            }
            if is_replaced {
                attempt = LAST_DOUBLING;
            }
            let wait = backoff(&self.node, attempt);
            attempt = attempt.saturating_add(1);
            let milliseconds = wait.as_millis();
            link::down(&self.link, &reason);
            warn!(
                controllers = %self.controllers, reason, retry_milliseconds = milliseconds,
                "no connection to a controller; the programmed state stays"
            );
            tokio::time::sleep(wait).await;
        }
    }

    /// Connects to the controller for the stream with this number, and follows the stream.
    async fn connect(&mut self, stream: usize) -> Result<Option<Opened>, StreamError> {
        let controller = self.controllers.choose(&self.node, stream);
        let controller = controller.map_err(StreamError::NoController)?;
        let opened = Opened::open(&*self.dialer, controller, self.hello(None)).await?;
        self.follow(opened).await
    }

    /// The first message of a stream. With `younger_than` it asks for a controller with newer objects.
    fn hello(&self, younger_than: Option<Duration>) -> wire::AgentMessage {
        let session = Session::new(self.node.clone());
        let (held, watermark) = (self.plans.held(), self.remembered.watermark());
        let schedulers = (self.schedulers)();
        session.hello(
            &self.version,
            held.as_ref(),
            watermark,
            younger_than,
            &schedulers,
        )
    }

    fn another(&self, than: &Access, attempt: usize) -> Option<Access> {
        let own = &than.address;
        self.controllers.another(&self.node, own, attempt)
    }

    /// Asks another controller for its plan, if its objects are newer. Returns the number of commits with the stream.
    fn attempt(
        &self,
        other: Access,
        younger_than: Duration,
        commits: u64,
    ) -> Attempt<(Opened, u64)> {
        let hello = self.hello(Some(younger_than));
        let opened = Opened::open_and_wait(self.dialer.clone(), other, hello);
        Box::pin(async move { Some((opened.await?, commits)) })
    }

    /// Follows a stream to its end. Returns the stream of a fresher controller, or of the first one, if there is one.
    async fn follow(&mut self, mut opened: Opened) -> Result<Option<Opened>, StreamError> {
        let (controller, answers) = (opened.controller.clone(), opened.answers.clone());
        let renewals = Renewals::new(controller.token_file().cloned(), opened.token.take());
        info!(%controller, "connected");
        link::up(&self.link);
        // This controller has not received a status yet.
        let mut draining = self.draining.clone();
        draining.mark_changed();
        let mut session = Session::new(self.node.clone());
        let mut search = Search::new(self.node.clone());
        let mut returns = Return::new(self.controllers.return_interval(&self.node));
        let mut reporter = StatusReporter::new(self.applied.clone(), &self.health, renewals);
        let mut commits = 0_u64;
        loop {
            let begun = commits;
            let ask = |attempt, younger_than| {
                let other = self.another(&controller, attempt)?;
                Some(self.attempt(other, younger_than, begun))
            };
            let ask_first = || {
                let first = self.controllers.first(&self.node, &controller)?;
                // It must not be outdated.
                Some(self.attempt(first, STALE_AFTER, begun))
            };
            let message = tokio::select! {
                // In this order, so that a simulation can repeat a stream. The status comes first, because no controller
                // may delay it; its changes are few.
                biased;
                // It reserves queue space first, so that the two sides never wait for each other.
                done = report(&answers, &mut draining, &mut reporter) => {
                    done?;
                    continue;
                }
                message = opened.next() => message?,
                // A stream that began before a commit does not count: its controller may not have read what changed
                // (I-12).
                (fresher, begun) = search.found(ask) => {
                    if begun != commits {
                        search.again();
                        continue;
                    }
                    log_move(&controller, &fresher, "moving to a controller with newer objects");
                    return Ok(Some(fresher));
                }
                (first, begun) = returns.succeeded(ask_first) => {
                    if begun != commits {
                        continue;
                    }
                    log_move(&controller, &first, "returning to the first controller");
                    return Ok(Some(first));
                }
            };
            let Some(message) = message else {
                return Ok(None);
            };
            match session.take(message, |key| self.plans.list(key))? {
                Step::More => {}
                Step::Gone(addresses) => self.plans.set_gone(addresses),
                Step::Age(age) => search.reported(self.age(&controller, age)),
                Step::Commit(commit) => {
                    commits += 1;
                    let ack = self.commit(*commit, &session, &mut reporter).await?;
                    send(&answers, ack).await?;
                }
            }
        }
    }

    /// Records the age of the objects of the connected controller, and returns it if they are outdated.
    fn age(&self, controller: &Access, age: Duration) -> Option<Outdated> {
        let outdated = Outdated::of(age);
        if outdated.is_some() && self.link.borrow().outdated.is_none() {
            let seconds = age.as_secs();
            warn!(
                %controller, seconds,
                "the controller receives nothing from the API server, or does not plan; the plan stays, and the agent \
                 looks for a controller with newer objects"
            );
        }
        link::reported(&self.link, outdated);
        outdated
    }

    /// Commits a batch, and returns the acknowledgement after it was applied.
    async fn commit(
        &mut self,
        commit: Commit,
        session: &Session,
        reporter: &mut StatusReporter,
    ) -> Result<wire::AgentMessage, StreamError> {
        let Commit {
            batch,
            staged,
            expected,
            watermark,
            cause: Cause { trace, triggered },
        } = commit;
        let whole = trace.map(|_| Instant::now());
        let changes = Changes::of(&staged).since(triggered);
        // Also for a batch that is rejected then: a watermark that is ahead of the plan costs one list.
        self.remembered.note(watermark).await;
        match self.plans.commit_traced(staged, expected, trace) {
            Ok(generation) => {
                self.health.queued(generation, changes);
                let applied = self.applied(generation).await?;
                reporter.hash = applied.hash;
                reporter.troubles = applied.troubles.clone();
                let closed_checks = reporter.closed_checks.borrow();
                Ok(session.ack(batch, expected, &applied, &closed_checks, whole))
            }
            Err(mismatch) => {
                warn!(%mismatch, "the batch does not match the announced hash; requesting the complete plan");
                Ok(session.refuse(batch, mismatch.found))
            }
        }
    }

    /// Waits for the result of the pass with this generation of the plan or a later one.
    async fn applied(&mut self, generation: u64) -> Result<Applied, StreamError> {
        let reached = |applied: &Applied| applied.generation >= generation;
        let applied = self
            .applied
            .wait_for(reached)
            .await
            .map_err(|_| StreamError::Ending)?;
        Ok(applied.clone())
    }
}

fn log_move(from: &Access, to: &Opened, message: &str) {
    info!(%from, to = %to.controller, "{message}");
}

/// The delay before a reconnect. It doubles with each attempt and differs between nodes, so that agents do not all
/// reconnect at once to a controller that comes back.
fn backoff(node: &str, attempt: u32) -> Duration {
    let longest = INITIAL_BACKOFF
        .saturating_mul(1 << attempt.min(LAST_DOUBLING))
        .min(MAX_BACKOFF);
    spread(longest, node, attempt)
}

/// Between half of a delay and all of it, by a number that depends only on the node and the attempt.
fn spread(longest: Duration, node: &str, attempt: u32) -> Duration {
    let number = node.bytes().fold(u64::from(attempt), |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    });
    let share = u32::try_from(number % 512).unwrap_or(0);
    longest / 2 + (longest / 1024) * share
}

/// The messages of an error and all its sources: the library's own message is only "transport error".
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        // Wrappers often repeat the message of their source.
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}

#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error(transparent)]
    NoController(ControllersError),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error("{}", .0.message())]
    Refused(#[from] tonic::Status),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("the controller closed the stream")]
    Closed,
    #[error("this program is ending")]
    Ending,
}

impl StreamError {
    /// Whether a newer stream of the node replaced this one. Then another agent runs on the node: without a long delay,
    /// the two would take the stream from each other many times a second.
    fn is_replaced(&self) -> bool {
        matches!(self, Self::Refused(status) if status.code() == tonic::Code::Aborted)
    }
}

#[cfg(test)]
mod tests;
