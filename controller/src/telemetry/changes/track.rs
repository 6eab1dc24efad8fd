//! Collects the notes of each change until the last node has it in force. Pure: notes, the state of the registry and
//! times are arguments.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry_sdk::trace::SpanData;

use super::{Delivered, Note, Published};
use crate::store::BatchCauses;
use crate::store::cause::Cause;

/// Maximum number of open changes. More are open only while nodes cannot keep up, which the open ones show. Further
/// changes are not traced.
const MAX_OPEN_CHANGES: usize = 1024;
/// Maximum number of nodes kept for a change: those with failures first, then the slowest.
const MAX_NODES_PER_CHANGE: usize = 16;
/// Maximum number of planning spans kept for a change.
const MAX_PARTS_PER_CHANGE: usize = 32;
/// Maximum number of different causes of answers that are kept before they are added to their changes.
const MAX_TALLIES: usize = 256;
/// Time after which a change no longer waits for nodes without an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Nodes that have not answered yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Their number.
    pub(super) count: usize,
    /// The first few of them.
    pub(super) first: Vec<Arc<str>>,
}

/// All changes that have not ended.
#[derive(Debug, Default)]
pub(super) struct Track {
    /// In the order of their versions.
    order: VecDeque<[u8; 16]>,
    open: BTreeMap<[u8; 16], Open>,
    /// Answers that were not added to their changes yet, by the address of their causes: many nodes have the same.
    tallies: BTreeMap<usize, Tally>,
    /// Whether single nodes are not needed, so none is kept. At a high rate of changes, each answer of thousands of
    /// nodes belongs to many changes.
    only_counts: bool,
}

/// Answers to batches with the same changes.
#[derive(Debug)]
struct Tally {
    causes: Arc<BatchCauses>,
    answers: Answers,
}

/// Some answers.
#[derive(Debug, Clone, Copy, Default)]
struct Answers {
    /// Their number.
    count: usize,
    /// Number of those with failures.
    failed: usize,
    /// When the last batch was handed to the network.
    handed: Option<SystemTime>,
    /// When the last answer was received.
    last: Option<SystemTime>,
}

impl Answers {
    fn add(&mut self, more: Self) {
        self.count += more.count;
        self.failed += more.failed;
        self.handed = self.handed.max(more.handed);
        self.last = self.last.max(more.last);
    }
}

impl From<&Delivered> for Answers {
    fn from(delivered: &Delivered) -> Self {
        Self {
            count: 1,
            failed: usize::from(!delivered.answered.is_sound()),
            handed: Some(delivered.handed),
            last: Some(delivered.at),
        }
    }
}

#[derive(Debug)]
struct Open {
    cause: Arc<Cause>,
    noted: SystemTime,
    published: Option<Published>,
    parts: Vec<SpanData>,
    shown: Vec<Arc<Delivered>>,
    answers: Answers,
}

/// A change that has ended: the last node answered, or the wait was given up.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) cause: Arc<Cause>,
    pub(super) published: Published,
    /// The spans of planning it.
    pub(super) parts: Vec<SpanData>,
    /// Nodes that answered a batch with it, as far as they were kept.
    pub(super) shown: Vec<Arc<Delivered>>,
    /// Number of nodes that answered a batch with it.
    pub(super) answered: usize,
    /// Number of those with failures.
    pub(super) failed: usize,
    /// Nodes that have not answered.
    pub(super) missing: Waiting,
    /// When the last batch with it was handed to the network; without answers, when the change was published.
    pub(super) handed: SystemTime,
    /// When the last node answered; without answers, when the change was published.
    pub(super) end: SystemTime,
}

impl Ended {
    /// The time from its trigger to the last answer.
    pub(super) fn took(&self) -> Duration {
        let took = self.end.duration_since(self.cause.began());
        took.unwrap_or_default()
    }

    /// Whether some node does not have it in force.
    pub(super) fn has_failed(&self) -> bool {
        self.failed > 0 || self.missing.count > 0
    }
}

impl Track {
    /// A track that keeps no nodes.
    pub(super) fn only_counting() -> Self {
        Self {
            only_counts: true,
            ..Self::default()
        }
    }

    /// Whether no change is open.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Adds a note. Returns false for a new change that is dropped because too many are open.
    pub(super) fn take(&mut self, note: Note, now: SystemTime) -> bool {
        match note {
            Note::Begun(cause) => return self.begin(cause, now),
            Note::SpanEnded(span) => {
                let trace = span.span_context.trace_id().to_bytes();
                if let Some(open) = self.open.get_mut(&trace)
                    && open.parts.len() < MAX_PARTS_PER_CHANGE
                {
                    open.parts.push(*span);
                }
            }
            Note::Published(published) => {
                if let Some(open) = self.open.get_mut(&published.trace.trace) {
                    open.published = Some(*published);
                }
            }
            Note::NotPublished(context) => {
                self.open.remove(&context.trace);
                self.order.retain(|trace| *trace != context.trace);
            }
            Note::Delivered(delivered) => self.deliver(*delivered),
        }
        true
    }

    fn begin(&mut self, cause: Arc<Cause>, now: SystemTime) -> bool {
        if self.open.len() >= MAX_OPEN_CHANGES {
            return false;
        }
        let trace = cause.trace.trace;
        self.order.push_back(trace);
        let open = Open {
            cause,
            noted: now,
            published: None,
            parts: Vec::new(),
            shown: Vec::new(),
            answers: Answers::default(),
        };
        self.open.insert(trace, open);
        true
    }

    fn deliver(&mut self, delivered: Delivered) {
        if self.tallies.len() >= MAX_TALLIES {
            self.settle();
        }
        let causes = &delivered.causes;
        let tally = self.tallies.entry(Arc::as_ptr(causes).addr());
        let tally = tally.or_insert_with(|| Tally {
            causes: causes.clone(),
            answers: Answers::default(),
        });
        tally.answers.add((&delivered).into());
        if self.only_counts {
            return;
        }
        let delivered = Arc::new(delivered);
        for cause in &delivered.causes.causes {
            if let Some(open) = self.open.get_mut(&cause.trace.trace) {
                open.show(delivered.clone());
            }
        }
    }

    /// Adds answers to their changes.
    fn settle(&mut self) {
        for (_, tally) in std::mem::take(&mut self.tallies) {
            for cause in &tally.causes.causes {
                if let Some(open) = self.open.get_mut(&cause.trace.trace) {
                    open.answers.add(tally.answers);
                }
            }
        }
    }

    /// Changes that have ended, the oldest first, with their missing nodes. All nodes that are waited for have the version
    /// `lowest` of the plans in force (`None`: none is). `waiting` returns those that do not have a version; a node that
    /// waits for one version waits for all later ones.
    ///
    /// Notes that were sent before this call have to be added before [`Track::end`].
    pub(super) fn complete(
        &self,
        now: SystemTime,
        lowest: Option<u64>,
        waiting: impl Fn(u64) -> Waiting,
    ) -> Vec<([u8; 16], Waiting)> {
        let mut complete = Vec::new();
        for trace in &self.order {
            let Some(open) = self.open.get(trace) else {
                continue;
            };
            let Some(published) = &open.published else {
                // The note may have been dropped because the queue was full.
                if is_over(open.noted, now) {
                    complete.push((*trace, Waiting::default()));
                    continue;
                }
                break;
            };
            let waits = lowest.is_some_and(|lowest| lowest < published.version);
            if waits && !is_over(published.at, now) {
                break;
            }
            let missing = waits.then(|| waiting(published.version));
            complete.push((*trace, missing.unwrap_or_default()));
        }
        complete
    }

    /// Closes changes and returns those that were published.
    pub(super) fn end(&mut self, complete: Vec<([u8; 16], Waiting)>) -> Vec<Ended> {
        self.settle();
        let mut ended = Vec::new();
        for (trace, missing) in complete {
            self.order.retain(|other| *other != trace);
            let open = self.open.remove(&trace);
            ended.extend(open.and_then(|open| open.end(missing)));
        }
        ended
    }
}

/// Also true if the clock was set back by [`ANSWER_TIMEOUT`] or more; otherwise a change could stay open for hours.
fn is_over(since: SystemTime, now: SystemTime) -> bool {
    let apart = now.duration_since(since);
    apart.unwrap_or_else(|back| back.duration()) >= ANSWER_TIMEOUT
}

impl Open {
    fn show(&mut self, delivered: Arc<Delivered>) {
        self.shown.push(delivered);
        if self.shown.len() > MAX_NODES_PER_CHANGE {
            let rank = |delivered: &Arc<Delivered>| (!delivered.answered.is_sound(), delivered.at);
            let least = self.shown.iter().enumerate().min_by_key(|(_, d)| rank(d));
            if let Some((least, _)) = least {
                self.shown.swap_remove(least);
            }
        }
    }

    /// `None` without the note that it was published.
    fn end(self, missing: Waiting) -> Option<Ended> {
        let published = self.published?;
        let mut shown = self.shown;
        shown.sort_by(|left, right| left.node.cmp(&right.node));
        let since = |time: Option<SystemTime>| time.unwrap_or(published.at).max(published.at);
        Some(Ended {
            handed: since(self.answers.handed),
            end: since(self.answers.last),
            cause: self.cause,
            published,
            parts: self.parts,
            shown,
            answered: self.answers.count,
            failed: self.answers.failed,
            missing,
        })
    }
}

#[cfg(test)]
#[path = "track_tests.rs"]
pub(super) mod tests;
