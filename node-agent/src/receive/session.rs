//! State machine of one stream, without I/O: it converts messages to staged changes and replies.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use portolan_plan::{EntryKey, PlanHash, StagedChanges};
use portolan_proto::item::HeldList;
use portolan_proto::wire::agent_message::Message as Answer;
use portolan_proto::wire::plan_message::Message;
use portolan_proto::{DecodeError, MAX_TRIGGERS, TraceContext, WIRE_VERSION, draining, item, wire};
use portolan_reconcile::{Drift, DriftCount, DriftKind};
use thiserror::Error;
use tracing::warn;

use super::token::Token;
use crate::health::ClosedChecks;
use crate::plan_watch::Held;
use crate::programmer::{Applied, Troubles};

/// Maximum number of undecodable entries in an acknowledgement.
pub(super) const MAX_UNDECODABLE: usize = 8;

/// Maximum number of messages per list in an answer.
const MAX_MESSAGES: usize = 8;

/// Maximum length of a text in an answer, in characters. An answer then fits into a message.
const MAX_TEXT: usize = 512;

/// Maximum number of schedulers in the first message.
const MAX_SCHEDULERS: usize = 32;

/// Maximum number of changes per batch; the limit protects memory.
const MAX_CHANGES: usize = 4_000_000;

/// The agent's side of a stream.
#[derive(Debug)]
pub struct Session {
    node: Arc<str>,
    open: Option<OpenBatch>,
    undecodable: Vec<String>,
}

#[derive(Debug)]
struct OpenBatch {
    batch: u64,
    staged: StagedChanges,
    /// Joins the parts of large entries.
    reader: item::Reader,
    watermark: wire::Watermark,
    cause: Cause,
}

/// The cause of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cause {
    /// Its trace, if the change is traced.
    pub trace: Option<TraceContext>,
    /// The trigger times of its changes, since 1970.
    pub triggered: Vec<Duration>,
}

impl Cause {
    fn of(begin: &wire::Begin) -> Self {
        let triggered = begin.triggered_microseconds.iter().take(MAX_TRIGGERS);
        Self {
            trace: TraceContext::from_bytes(&begin.trace),
            triggered: triggered.copied().map(Duration::from_micros).collect(),
        }
    }
}

/// The action that a message requires.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Nothing yet.
    More,
    /// A batch is complete.
    Commit(Box<Commit>),
    /// These draining addresses no longer have an endpoint.
    Gone(BTreeSet<IpAddr>),
    /// The objects of the controller have this age.
    Age(Duration),
}

/// A complete batch.
#[derive(Debug, PartialEq)]
pub struct Commit {
    /// Its number.
    pub batch: u64,
    /// Its changes.
    pub staged: StagedChanges,
    /// The announced hash of the resulting plan.
    pub expected: PlanHash,
    /// The changed part of the watermark.
    pub watermark: wire::Watermark,
    /// Its cause.
    pub cause: Cause,
}

/// A violation of the protocol by the controller.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SessionError {
    /// Items or a commit without a batch.
    #[error("the controller sent {what} outside a batch")]
    NoBatch {
        /// The message.
        what: &'static str,
    },
    /// A commit of another batch than the open one.
    #[error("the controller committed batch {committed} while batch {open} was open")]
    WrongBatch {
        /// The committed batch.
        committed: u64,
        /// The open batch.
        open: u64,
    },
    /// A hash that is not 16 bytes.
    #[error(
        "the controller sent a plan hash of {length} bytes; if the controller is newer, update this agent"
    )]
    Hash {
        /// Its length in bytes.
        length: usize,
    },
    /// Addresses that cannot be decoded.
    #[error("the controller sent {0}; if the controller is newer, update this agent")]
    Gone(#[from] DecodeError),
    /// Bytes in a batch that are not an item.
    #[error(
        "the controller sent an item that cannot be decoded: {0}; if the controller is newer, update this agent"
    )]
    Item(#[source] DecodeError),
    /// More changes than a plan can have entries.
    #[error("batch {batch} has more than {MAX_CHANGES} changes")]
    TooLarge {
        /// The batch.
        batch: u64,
    },
    /// A message without content or of an unknown kind.
    #[error(
        "the controller sent a message of an unknown kind; if the controller is newer, update this agent"
    )]
    Unknown,
}

impl Session {
    /// A stream of this node.
    pub fn new(node: Arc<str>) -> Self {
        Self {
            node,
            open: None,
            undecodable: Vec::new(),
        }
    }

    /// The first message to the controller: the agent's `version`, the plan that it already holds, if it matters, the age
    /// below which the objects of the controller have to be, and the schedulers that the kernel has loaded.
    pub fn hello(
        &self,
        version: &str,
        held: Option<&Held>,
        watermark: &wire::Watermark,
        younger_than: Option<Duration>,
        schedulers: &[String],
    ) -> wire::AgentMessage {
        answer(Answer::Hello(wire::Hello {
            node: self.node.to_string(),
            wire_version: WIRE_VERSION,
            agent_version: version.into(),
            plan_hash: held.map_or_else(Vec::new, |held| held.hash.to_bytes().into()),
            bucket_hashes: held.map_or_else(Vec::new, |held| held.buckets.to_bytes()),
            // Without a plan, the kernel may still have one.
            watermark: (!watermark.kinds.is_empty()).then(|| watermark.clone()),
            younger_than_milliseconds: younger_than.map_or(0, milliseconds),
            schedulers: texts(schedulers.iter().take(MAX_SCHEDULERS)),
        }))
    }

    /// Processes one message. `held` returns lists of the current plan.
    ///
    /// # Errors
    /// [`SessionError`] if the message violates the protocol; the caller has to close the stream.
    pub fn take(
        &mut self,
        message: wire::PlanMessage,
        held: impl Fn(&EntryKey) -> Option<HeldList>,
    ) -> Result<Step, SessionError> {
        match message.message.ok_or(SessionError::Unknown)? {
            Message::Begin(begin) => {
                self.begin(begin);
                Ok(Step::More)
            }
            Message::Items(wire::Items { items }) => {
                self.stage(items, held)?;
                Ok(Step::More)
            }
            Message::Commit(commit) => self.commit(&commit),
            Message::Batch(wire::Batch {
                begin,
                items,
                commit,
            }) => {
                self.begin(begin.ok_or(SessionError::Unknown)?);
                self.stage(items.unwrap_or_default().items, held)?;
                self.commit(&commit.ok_or(SessionError::Unknown)?)
            }
            Message::Gone(wire::Gone { addresses }) => {
                Ok(Step::Gone(draining::read(&addresses, "gone.addresses")?))
            }
            Message::Freshness(wire::Freshness { age_milliseconds }) => {
                Ok(Step::Age(Duration::from_millis(age_milliseconds)))
            }
        }
    }

    /// The status of the node: draining addresses, drift, ports on which the agent cannot listen, kernel settings
    /// that cannot be written, the hash of the applied plan, and the Services that are an exception.
    pub fn status(
        draining: &BTreeSet<IpAddr>,
        drift: &Drift,
        [closed, unwritten]: [&BTreeSet<String>; 2],
        applied: PlanHash,
        (troubles, closed_checks): (&Troubles, &ClosedChecks),
    ) -> wire::AgentMessage {
        let of_kind = |(kind, count): (&DriftKind, &DriftCount)| wire::Drift {
            kind: kind.to_string(),
            found: count.found,
            repaired: count.repaired,
            unrepaired: count.unrepaired,
        };
        answer(Answer::Status(wire::Status {
            draining: draining::write(draining),
            drift: drift.iter().map(of_kind).collect(),
            closed_ports: texts(closed.iter().take(MAX_MESSAGES)),
            unwritten_settings: texts(unwritten.iter().take(MAX_MESSAGES)),
            applied_hash: applied.to_bytes().to_vec(),
            troubles: Some(about_services(troubles, closed_checks)),
        }))
    }

    /// A newer token of this agent.
    pub(super) fn renewal(token: &Token) -> wire::AgentMessage {
        let token = token.text().to_owned();
        answer(Answer::Renewal(wire::Renewal { token }))
    }

    /// Begins a batch; an open batch is discarded.
    fn begin(&mut self, begin: wire::Begin) {
        let cause = Cause::of(&begin);
        let staged = if begin.snapshot {
            StagedChanges::snapshot()
        } else if begin.buckets.is_empty() {
            StagedChanges::delta()
        } else {
            StagedChanges::of_buckets(begin.buckets.into_iter().collect())
        };
        self.open = Some(OpenBatch {
            batch: begin.batch,
            staged,
            reader: item::Reader::default(),
            watermark: begin.watermark.unwrap_or_default(),
            cause,
        });
        self.undecodable.clear();
    }

    fn commit(&mut self, commit: &wire::Commit) -> Result<Step, SessionError> {
        let open = self
            .open
            .take()
            .ok_or(SessionError::NoBatch { what: "a commit" })?;
        if open.batch != commit.batch {
            return Err(SessionError::WrongBatch {
                committed: commit.batch,
                open: open.batch,
            });
        }
        let expected = PlanHash::from_bytes(&commit.plan_hash).ok_or(SessionError::Hash {
            length: commit.plan_hash.len(),
        })?;
        Ok(Step::Commit(Box::new(Commit {
            batch: open.batch,
            staged: open.staged,
            expected,
            watermark: open.watermark,
            cause: open.cause,
        })))
    }

    fn stage(
        &mut self,
        items: Vec<Bytes>,
        held: impl Fn(&EntryKey) -> Option<HeldList>,
    ) -> Result<(), SessionError> {
        let open = self
            .open
            .as_mut()
            .ok_or(SessionError::NoBatch { what: "items" })?;
        for item in items {
            let read = open.reader.read(item, &held);
            let Some((change, problem)) = read.map_err(SessionError::Item)? else {
                continue;
            };
            if let Some(problem) = problem {
                warn!(entry = %change.key(), %problem, "an entry cannot be decoded; keeping its previous value");
                if self.undecodable.len() < MAX_UNDECODABLE {
                    self.undecodable.push(change.key().to_string());
                }
            }
            open.staged.push(change);
        }
        if open.staged.len() > MAX_CHANGES {
            return Err(SessionError::TooLarge { batch: open.batch });
        }
        Ok(())
    }

    /// The number of recorded undecodable entries of the open batch.
    #[cfg(test)]
    pub(super) fn undecodable(&self) -> usize {
        self.undecodable.len()
    }

    /// The acknowledgement of an applied batch, with timing if the time of its completion (`whole`) is given.
    pub fn ack(
        &self,
        batch: u64,
        received: PlanHash,
        applied: &Applied,
        closed_checks: &ClosedChecks,
        whole: Option<Instant>,
    ) -> wire::AgentMessage {
        answer(Answer::Ack(wire::Ack {
            batch,
            received_hash: received.to_bytes().to_vec(),
            applied_hash: applied.hash.to_bytes().to_vec(),
            apply_microseconds: microseconds(applied.took),
            operations: u64::try_from(applied.operations).unwrap_or(u64::MAX),
            failures: texts(applied.failures.iter().take(MAX_MESSAGES)),
            failed_operations: u64::try_from(applied.failed).unwrap_or(u64::MAX),
            refused: false,
            undecodable: texts(&self.undecodable),
            timing: whole.map(|whole| timing(whole, applied)),
            troubles: Some(about_services(&applied.troubles, closed_checks)),
        }))
    }

    /// The negative acknowledgement of a batch that did not lead to the announced hash.
    pub fn refuse(&self, batch: u64, found: PlanHash) -> wire::AgentMessage {
        answer(Answer::Ack(wire::Ack {
            batch,
            received_hash: found.to_bytes().to_vec(),
            refused: true,
            undecodable: texts(&self.undecodable),
            ..wire::Ack::default()
        }))
    }
}

/// The durations since a batch was complete.
fn timing(whole: Instant, applied: &Applied) -> wire::Timing {
    let began = applied.began.unwrap_or(whole);
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let steps = applied.steps.iter().map(|step| wire::Step {
        name: step.name.into(),
        after_microseconds: microseconds(step.after),
        microseconds: microseconds(step.took),
        operations: count(step.operations),
        failed: count(step.failed),
    });
    wire::Timing {
        waited_microseconds: microseconds(began.saturating_duration_since(whole)),
        total_microseconds: microseconds(whole.elapsed()),
        steps: steps.collect(),
    }
}

/// What an answer says about Services.
fn about_services(troubles: &Troubles, closed_checks: &ClosedChecks) -> wire::Troubles {
    let mut troubles = troubles.to_wire(closed_checks);
    for shown in &mut troubles.shown {
        shown.service = shortened(&shown.service);
        shown.message = shortened(&shown.message);
    }
    troubles
}

/// Texts for an answer, each shortened to [`MAX_TEXT`].
fn texts<'a>(texts: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let texts = texts.into_iter();
    texts.map(|text| shortened(text)).collect()
}

fn shortened(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

fn answer(message: Answer) -> wire::AgentMessage {
    wire::AgentMessage {
        message: Some(message),
    }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
