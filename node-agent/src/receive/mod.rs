//! The stream from the controller: keeps the plan in the slot current, for as long as the program
//! runs, whatever happens to controllers.
//!
//! Touches: the network.

mod access;
mod address;
mod controllers;
#[cfg(test)]
mod fuzz;
mod heard;
mod link;
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

use self::heard::Heard;
pub use access::{Access, AccessError, Tls, Trust};
pub use address::{Address, AddressError};
pub use controllers::{Addresses, Controllers, ControllersError};
pub use link::{Link, LinkSender};
pub use session::{Cause, Commit, Held, Session, SessionError, Step};
pub use tls::TlsError;

use crate::health::Health;
use crate::metrics::Changes;
use crate::programmer::Applied;
use crate::slot::PlanSlot;

/// The first wait before another try; it doubles up to [`LONGEST_BACK_OFF`].
const FIRST_BACK_OFF: Duration = Duration::from_millis(100);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(10);

/// How long a connection may be silent before it is asked whether it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Answers on their way to the controller; one batch is in flight, so few are ever needed.
const ANSWERS: usize = 4;

/// Keeps the plan of one node current.
#[derive(Debug)]
pub struct Receiver {
    /// The node's name.
    pub node: Arc<str>,
    /// The version of the program, as the node's ProxyPlan tells it.
    pub version: Arc<str>,
    /// Where controllers are, and how they are talked to.
    pub controllers: Controllers,
    /// Where the plan goes.
    pub slot: Arc<PlanSlot>,
    /// What was done about it.
    pub applied: watch::Receiver<Applied>,
    /// The addresses of backends that drain.
    pub draining: watch::Receiver<BTreeSet<IpAddr>>,
    /// What is told of health.
    pub health: Arc<Health>,
    /// What is told of the way to the controller.
    pub link: LinkSender,
}

impl Receiver {
    /// Runs for as long as plans are programmed: connects, follows the stream until it ends, waits, and connects again.
    pub async fn run(mut self) {
        let (mut attempt, mut stream) = (0u32, 0);
        let mut heard = Heard::default();
        loop {
            let before = self.applied.borrow().generation;
            let end = match self.controllers.choose(&self.node, stream) {
                Ok(controller) => self.follow(&controller, &mut heard).await,
                Err(error) => Err(StreamError::Nobody(error)),
            };
            // One that ended may be about to end for good, and the others serve the same.
            stream = stream.wrapping_add(1);
            // Nobody is there to program what would be received: the program has to end.
            if matches!(end, Err(StreamError::Ending)) {
                return;
            }
            // A stream that brought something was a good one: begin again with short waits.
            if self.applied.borrow().generation != before {
                attempt = 0;
            }
            let wait = back_off(&self.node, attempt);
            attempt = attempt.saturating_add(1);
            let milliseconds = wait.as_millis();
            let reason = end.map_or_else(|error| error.to_string(), |()| "the stream ended".into());
            link::down(&self.link, &reason);
            warn!(
                controllers = %self.controllers, reason, retry_milliseconds = milliseconds,
                "no controller; what is programmed stays as it is"
            );
            tokio::time::sleep(wait).await;
        }
    }

    async fn follow(&mut self, controller: &Access, heard: &mut Heard) -> Result<(), StreamError> {
        let channel = controller.connect().await?;
        let mut client =
            PlanStreamClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let (answers, outgoing) = mpsc::channel(ANSWERS);
        let mut session = Session::new(self.node.clone());
        let held = self.slot.held(&heard.watermark);
        let hello = session.hello(&self.version, held.as_ref());
        send(&answers, hello).await?;
        let mut incoming = client
            .watch(controller.request(ReceiverStream::new(outgoing))?)
            .await?
            .into_inner();
        info!(%controller, "connected");
        link::up(&self.link);
        // This controller has heard nothing yet.
        self.draining.mark_changed();
        let mut told = Told {
            applied: self.applied.clone(),
            drift: Drift::default(),
            hash: PlanHash::default(),
            closed: self.health.closed(),
            unwritten: self.health.unwritten(),
        };
        loop {
            let message = tokio::select! {
                message = incoming.message() => message?,
                // With room for it, so that both sides never wait for each other.
                done = tell(&answers, &mut self.draining, &mut told) => {
                    done?;
                    continue;
                }
            };
            let Some(message) = message else {
                return Ok(());
            };
            match session.take(message, |key| self.slot.list(key))? {
                Step::More => {}
                Step::Gone(addresses) => self.slot.set_gone(addresses),
                Step::Commit(commit) => {
                    let ack = self.commit(*commit, &session, heard, &mut told).await?;
                    send(&answers, ack).await?;
                }
            }
        }
    }

    /// Lets a batch take effect, and answers it once it has.
    async fn commit(
        &mut self,
        commit: Commit,
        session: &Session,
        heard: &mut Heard,
        told: &mut Told,
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
        match self.slot.commit_traced(staged, expected, trace) {
            Ok(generation) => {
                heard.note(watermark);
                self.health.queued(generation, changes);
                let applied = self.applied(generation).await?;
                told.hash = applied.hash;
                Ok(session.ack(batch, expected, &applied, whole))
            }
            Err(mismatch) => {
                warn!(%mismatch, "asking for the whole plan");
                Ok(session.refuse(batch, mismatch.found))
            }
        }
    }

    /// What was done about this generation of the plan, or a later one.
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

/// What else is told of the node.
struct Told {
    applied: watch::Receiver<Applied>,
    /// What was told of drift.
    drift: Drift,
    /// What was told to be in force. An answer tells it too; what failed then comes into force later.
    hash: PlanHash,
    /// What cannot be listened on.
    closed: watch::Receiver<BTreeSet<String>>,
    /// Which kernel settings cannot be written.
    unwritten: watch::Receiver<BTreeSet<String>>,
}

/// Waits until there is something to tell of this node, and tells it.
async fn tell(
    answers: &mpsc::Sender<wire::AgentMessage>,
    draining: &mut watch::Receiver<BTreeSet<IpAddr>>,
    told: &mut Told,
) -> Result<(), StreamError> {
    let Told {
        applied,
        drift,
        hash,
        closed,
        unwritten,
    } = told;
    // The room first: this may be given up at each wait, and what changed is then still to be told.
    let room = answers.reserve().await.map_err(|_| StreamError::Closed)?;
    let news = tokio::select! {
        changed = draining.changed() => changed.map(|()| None),
        changed = closed.changed() => changed.map(|()| None),
        changed = unwritten.changed() => changed.map(|()| None),
        applied = applied.wait_for(|applied| applied.drift != *drift || applied.hash != *hash) => {
            applied.map(|applied| Some((applied.drift.clone(), applied.hash)))
        }
    };
    if let Some(news) = news.map_err(|_| StreamError::Ending)? {
        (*drift, *hash) = news;
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

/// Doubles with each attempt, and differs between nodes, so that agents of a controller that
/// comes back do not all arrive at once.
fn back_off(node: &str, attempt: u32) -> Duration {
    let longest = FIRST_BACK_OFF
        .saturating_mul(1 << attempt.min(16))
        .min(LONGEST_BACK_OFF);
    // Between a half and the whole, by a number that only depends on the node and the attempt.
    let spread = node.bytes().fold(u64::from(attempt), |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    });
    let share = u32::try_from(spread % 512).unwrap_or(0);
    longest / 2 + (longest / 1024) * share
}

/// An error with everything behind it: the library's own words stop at "transport error".
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        // Wrappers often repeat what they wrap.
        if !text.ends_with(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}

#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error(transparent)]
    Nobody(ControllersError),
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
    fn waits_grow_up_to_a_limit_and_differ_between_nodes() {
        let waits: Vec<_> = (0..12).map(|attempt| back_off("node-a", attempt)).collect();
        for (attempt, wait) in waits.iter().enumerate() {
            let whole = FIRST_BACK_OFF
                .saturating_mul(1 << attempt)
                .min(LONGEST_BACK_OFF);
            assert!(
                *wait >= whole / 2 && *wait <= whole,
                "attempt {attempt}: {wait:?}"
            );
        }
        assert_ne!(back_off("node-a", 9), back_off("node-b", 9));
    }
}
