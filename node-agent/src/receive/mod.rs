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
mod resume;
mod session;
mod tls;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_plan::PlanHash;
use portolan_proto::wire::plan_stream_client::PlanStreamClient;
use portolan_proto::{MAX_MESSAGE_BYTES, wire};
use portolan_reconcile::Drift;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tracing::{info, warn};

use self::resume::ResumeState;
pub use access::{Access, AccessError, Tls, Trust};
pub use address::{Address, AddressError};
pub use controllers::{Addresses, Controllers, ControllersError};
pub use dialer::{Connection, Dialer, NetworkDialer};
pub use link::{Link, LinkSender};
pub use session::{Cause, Commit, Session, SessionError, Step};
pub use tls::TlsError;

use crate::health::Changes;
use crate::health::Health;
use crate::plan_watch::PlanWatch;
use crate::programmer::Applied;

/// Initial delay before a reconnect; it doubles up to [`MAX_BACKOFF`].
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

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
    /// Results of passes.
    pub applied: watch::Receiver<Applied>,
    /// Addresses of draining backends.
    pub draining: watch::Receiver<BTreeSet<IpAddr>>,
    /// Health of the node.
    pub health: Arc<Health>,
    /// Publishes the state of the connection to the controller.
    pub link: LinkSender,
}

impl Receiver {
    /// Runs while the programmer runs: connects, follows the stream until it ends, waits, and connects again.
    pub async fn run(mut self) {
        let (mut attempt, mut stream) = (0u32, 0);
        let mut resume = ResumeState::default();
        loop {
            let before = self.applied.borrow().generation;
            let end = match self.controllers.choose(&self.node, stream) {
                Ok(controller) => self.follow(&controller, &mut resume).await,
                Err(error) => Err(StreamError::NoController(error)),
            };
            // Try the next controller: this one may be shutting down, and all serve the same plan.
            stream = stream.wrapping_add(1);
            // The programmer has ended, so the program has to end.
            if matches!(end, Err(StreamError::Ending)) {
                return;
            }
            // After a stream that delivered a change, start again with short delays.
            if self.applied.borrow().generation != before {
                attempt = 0;
            }
            let wait = backoff(&self.node, attempt);
            attempt = attempt.saturating_add(1);
            let milliseconds = wait.as_millis();
            let reason = end.map_or_else(|error| error.to_string(), |()| "the stream ended".into());
            link::down(&self.link, &reason);
            warn!(
                controllers = %self.controllers, reason, retry_milliseconds = milliseconds,
                "no connection to a controller; the programmed state stays"
            );
            tokio::time::sleep(wait).await;
        }
    }

    async fn follow(
        &mut self,
        controller: &Access,
        resume: &mut ResumeState,
    ) -> Result<(), StreamError> {
        let connection = self.dialer.dial(controller).await?;
        let mut client =
            PlanStreamClient::new(connection).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let (answers, outgoing) = mpsc::channel(QUEUE_CAPACITY);
        let mut session = Session::new(self.node.clone());
        let held = self.plans.held(&resume.watermark);
        let hello = session.hello(&self.version, held.as_ref());
        send(&answers, hello).await?;
        let mut incoming = client
            .watch(controller.request(ReceiverStream::new(outgoing))?)
            .await?
            .into_inner();
        info!(%controller, "connected");
        link::up(&self.link);
        // This controller has not received a status yet.
        self.draining.mark_changed();
        let mut reporter = StatusReporter {
            applied: self.applied.clone(),
            drift: Drift::default(),
            hash: PlanHash::default(),
            closed: self.health.closed(),
            unwritten: self.health.unwritten(),
        };
        loop {
            let message = tokio::select! {
                // In this order, so that a simulation can repeat a stream. The status comes first, because no controller
                // may delay it; its changes are few.
                biased;
                // It reserves queue space first, so that the two sides never wait for each other.
                done = report(&answers, &mut self.draining, &mut reporter) => {
                    done?;
                    continue;
                }
                message = incoming.message() => message?,
            };
            let Some(message) = message else {
                return Ok(());
            };
            match session.take(message, |key| self.plans.list(key))? {
                Step::More => {}
                Step::Gone(addresses) => self.plans.set_gone(addresses),
                Step::Commit(commit) => {
                    let ack = self
                        .commit(*commit, &session, resume, &mut reporter)
                        .await?;
                    send(&answers, ack).await?;
                }
            }
        }
    }

    /// Commits a batch, and returns the acknowledgement after it was applied.
    async fn commit(
        &mut self,
        commit: Commit,
        session: &Session,
        resume: &mut ResumeState,
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
        match self.plans.commit_traced(staged, expected, trace) {
            Ok(generation) => {
                resume.note(watermark);
                self.health.queued(generation, changes);
                let applied = self.applied(generation).await?;
                reporter.hash = applied.hash;
                Ok(session.ack(batch, expected, &applied, whole))
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

/// Sources and last reported values of the node's status.
struct StatusReporter {
    applied: watch::Receiver<Applied>,
    /// The last reported drift.
    drift: Drift,
    /// The last reported hash of the applied plan. Acknowledgements report it too, but after a failure it changes
    /// later.
    hash: PlanHash,
    /// Addresses on which the agent cannot listen.
    closed: watch::Receiver<BTreeSet<String>>,
    /// Kernel settings that cannot be written.
    unwritten: watch::Receiver<BTreeSet<String>>,
}

/// Waits for a change of the node's status, and reports it.
async fn report(
    answers: &mpsc::Sender<wire::AgentMessage>,
    draining: &mut watch::Receiver<BTreeSet<IpAddr>>,
    reporter: &mut StatusReporter,
) -> Result<(), StreamError> {
    let StatusReporter {
        applied,
        drift,
        hash,
        closed,
        unwritten,
    } = reporter;
    // Reserve first: this future may be cancelled at each await, and a change must not be marked as seen by then.
    let room = answers.reserve().await.map_err(|_| StreamError::Closed)?;
    let changed = tokio::select! {
        // The result of a pass first: the status below then contains all changes, and none is sent twice.
        biased;
        applied = applied.wait_for(|applied| applied.drift != *drift || applied.hash != *hash) => {
            applied.map(|applied| Some((applied.drift.clone(), applied.hash)))
        }
        changed = draining.changed() => changed.map(|()| None),
        changed = closed.changed() => changed.map(|()| None),
        changed = unwritten.changed() => changed.map(|()| None),
    };
    if let Some(applied) = changed.map_err(|_| StreamError::Ending)? {
        (*drift, *hash) = applied;
    }
    let (draining, closed) = (draining.borrow_and_update(), closed.borrow_and_update());
    let unwritten = unwritten.borrow_and_update();
    room.send(Session::status(
        &draining,
        drift,
        [&*closed, &*unwritten],
        *hash,
    ));
    Ok(())
}

async fn send(
    answers: &mpsc::Sender<wire::AgentMessage>,
    message: wire::AgentMessage,
) -> Result<(), StreamError> {
    answers.send(message).await.map_err(|_| StreamError::Closed)
}

/// The delay before a reconnect. It doubles with each attempt and differs between nodes, so that agents do not all
/// reconnect at once to a controller that comes back.
fn backoff(node: &str, attempt: u32) -> Duration {
    let longest = INITIAL_BACKOFF
        .saturating_mul(1 << attempt.min(16))
        .min(MAX_BACKOFF);
    // Between half of the delay and all of it, by a number that depends only on the node and the attempt.
    let spread = node.bytes().fold(u64::from(attempt), |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    });
    let share = u32::try_from(spread % 512).unwrap_or(0);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_up_to_a_limit_and_differ_between_nodes() {
        let waits: Vec<_> = (0..12).map(|attempt| backoff("node-a", attempt)).collect();
        for (attempt, wait) in waits.iter().enumerate() {
            let whole = INITIAL_BACKOFF
                .saturating_mul(1 << attempt)
                .min(MAX_BACKOFF);
            assert!(
                *wait >= whole / 2 && *wait <= whole,
                "attempt {attempt}: {wait:?}"
            );
        }
        assert_ne!(backoff("node-a", 9), backoff("node-b", 9));
    }
}
