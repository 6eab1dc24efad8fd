//! One stream as a state machine without I/O: messages in, staged changes and answers out.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use portolan_plan::{BucketHashes, EntryKey, PlanHash, StagedChanges};
use portolan_proto::item::HeldList;
use portolan_proto::wire::agent_message::Message as Answer;
use portolan_proto::wire::plan_message::Message;
use portolan_proto::{
    DecodeError, TRIGGERS_TOLD, TraceContext, WIRE_VERSION, draining, item, wire,
};
use portolan_reconcile::{Drift, DriftCount, DriftKind};
use thiserror::Error;
use tracing::warn;

use crate::programmer::Applied;

/// How many unreadable entries are named.
pub(super) const UNDECODABLE_TOLD: usize = 8;

/// How many ports that cannot be listened on are named.
const MOST_TOLD: usize = 8;

/// Entries that one batch may touch; more is no plan but an attack on memory.
const MOST_CHANGES: usize = 4_000_000;

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
    watermark: wire::Watermark,
    cause: Cause,
}

/// What a batch came from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cause {
    /// The trace that it belongs to, where somebody wants to know what takes how long.
    pub trace: Option<TraceContext>,
    /// When what it is about happened, since 1970.
    pub triggered: Vec<Duration>,
}

impl Cause {
    fn of(begin: &wire::Begin) -> Self {
        let triggered = begin.triggered_microseconds.iter().take(TRIGGERS_TOLD);
        Self {
            trace: TraceContext::from_bytes(&begin.trace),
            triggered: triggered.copied().map(Duration::from_micros).collect(),
        }
    }
}

/// The plan that an agent holds when it connects.
#[derive(Debug)]
pub struct Held {
    /// The hash of what was received.
    pub hash: PlanHash,
    /// The same, bucket by bucket.
    pub buckets: BucketHashes,
    /// What controllers told of the objects that it was made from.
    pub watermark: wire::Watermark,
}

/// What a message asks for.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Nothing yet.
    More,
    /// A batch is complete.
    Commit(Box<Commit>),
    /// Of what drains here, these addresses have no endpoint any more.
    Gone(BTreeSet<IpAddr>),
}

/// A batch that is complete.
#[derive(Debug, PartialEq)]
pub struct Commit {
    /// Its number.
    pub batch: u64,
    /// What it changes.
    pub staged: StagedChanges,
    /// The hash of the plan it leads to.
    pub expected: PlanHash,
    /// What is new of the objects that it was made from.
    pub watermark: wire::Watermark,
    /// What it came from.
    pub cause: Cause,
}

/// A controller that does not keep to the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SessionError {
    /// Items or a commit without a batch.
    #[error("the controller sent {what} outside a batch")]
    NoBatch {
        /// What it sent.
        what: &'static str,
    },
    /// A commit of another batch than the one that is open.
    #[error("the controller committed batch {committed} while batch {open} was open")]
    WrongBatch {
        /// The batch it committed.
        committed: u64,
        /// The batch it began.
        open: u64,
    },
    /// A hash that is not 16 bytes.
    #[error("the controller sent a plan hash of {length} bytes; a newer controller?")]
    Hash {
        /// How many bytes it has.
        length: usize,
    },
    /// Addresses that cannot be read.
    #[error("the controller sent {0}; a newer controller?")]
    Gone(#[from] DecodeError),
    /// Bytes in a batch that are no item.
    #[error("the controller sent an item that cannot be read: {0}; a newer controller?")]
    Item(#[source] DecodeError),
    /// More changes than a plan can have entries.
    #[error("batch {batch} has more than {MOST_CHANGES} changes")]
    TooLarge {
        /// The batch.
        batch: u64,
    },
    /// A message without content, or of a kind that is not known here.
    #[error("the controller sent a message of an unknown kind; a newer controller?")]
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

    /// The first message of a program of this `version`, with the plan that is held already and what was told of the
    /// objects that it was made from.
    pub fn hello(&self, version: &str, held: Option<&Held>) -> wire::AgentMessage {
        answer(Answer::Hello(wire::Hello {
            node: self.node.to_string(),
            wire_version: WIRE_VERSION,
            agent_version: version.into(),
            plan_hash: held.map_or_else(Vec::new, |held| held.hash.to_bytes().into()),
            bucket_hashes: held.map_or_else(Vec::new, |held| held.buckets.to_bytes()),
            watermark: held.map(|held| held.watermark.clone()),
        }))
    }

    /// Takes one message. `held` tells of the lists that the plan in force has.
    ///
    /// # Errors
    /// [`SessionError`] when it does not belong here; the stream is to be given up.
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
        }
    }

    /// What is particular to the node: addresses that drain, drift, ports that cannot be listened on, kernel
    /// settings that cannot be written, and what is in force.
    pub fn status(
        draining: &BTreeSet<IpAddr>,
        drift: &Drift,
        [closed, unwritten]: [&BTreeSet<String>; 2],
        applied: PlanHash,
    ) -> wire::AgentMessage {
        let of_kind = |(kind, count): (&DriftKind, &DriftCount)| wire::Drift {
            kind: kind.to_string(),
            found: count.found,
            repaired: count.repaired,
            standing: count.standing,
        };
        answer(Answer::Status(wire::Status {
            draining: draining::write(draining),
            drift: drift.iter().map(of_kind).collect(),
            closed_ports: closed.iter().take(MOST_TOLD).cloned().collect(),
            unwritten_settings: unwritten.iter().take(MOST_TOLD).cloned().collect(),
            applied_hash: applied.to_bytes().to_vec(),
        }))
    }

    /// A batch that was begun before and not committed never happened.
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
            let Some((change, problem)) = item::read(item, &held).map_err(SessionError::Item)?
            else {
                continue;
            };
            if let Some(problem) = problem {
                warn!(entry = %change.key(), %problem, "kept what was there before");
                if self.undecodable.len() < UNDECODABLE_TOLD {
                    self.undecodable.push(change.key().to_string());
                }
            }
            open.staged.push(change);
        }
        if open.staged.len() > MOST_CHANGES {
            return Err(SessionError::TooLarge { batch: open.batch });
        }
        Ok(())
    }

    /// How many entries of the batch that is open are remembered as unreadable.
    #[cfg(test)]
    pub(super) fn undecodable(&self) -> usize {
        self.undecodable.len()
    }

    /// The answer to a batch that took effect; with what took the time since it was whole, if that is
    /// given.
    pub fn ack(
        &self,
        batch: u64,
        received: PlanHash,
        applied: &Applied,
        whole: Option<Instant>,
    ) -> wire::AgentMessage {
        answer(Answer::Ack(wire::Ack {
            batch,
            received_hash: received.to_bytes().to_vec(),
            applied_hash: applied.hash.to_bytes().to_vec(),
            apply_microseconds: microseconds(applied.took),
            operations: u64::try_from(applied.operations).unwrap_or(u64::MAX),
            failures: applied.failures.clone(),
            failed_operations: u64::try_from(applied.failed).unwrap_or(u64::MAX),
            refused: false,
            undecodable: self.undecodable.clone(),
            timing: whole.map(|whole| timing(whole, applied)),
        }))
    }

    /// The answer to a batch that did not lead to the announced plan.
    pub fn refuse(&self, batch: u64, found: PlanHash) -> wire::AgentMessage {
        answer(Answer::Ack(wire::Ack {
            batch,
            received_hash: found.to_bytes().to_vec(),
            refused: true,
            undecodable: self.undecodable.clone(),
            ..wire::Ack::default()
        }))
    }
}

/// What took the time since a batch was whole.
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

fn answer(message: Answer) -> wire::AgentMessage {
    wire::AgentMessage {
        message: Some(message),
    }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
