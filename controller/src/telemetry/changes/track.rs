//! Collects the notes of each change until the last node has it in force. Pure: notes, the state of the registry and
//! times are arguments.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry_sdk::trace::SpanData;

use super::{Delivered, Note, Published};
use crate::store::cause::Cause;

/// Maximum number of open changes. More are open only while nodes cannot keep up, which the open ones show. Further
/// changes are not traced.
const MAX_OPEN_CHANGES: usize = 1024;
/// Maximum number of nodes kept for a change: those with failures first, then the slowest.
const MAX_NODES_PER_CHANGE: usize = 16;
/// Maximum number of planning spans kept for a change.
const MAX_PARTS_PER_CHANGE: usize = 32;
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
    /// Whether single nodes are not needed, so none is kept. At a high rate of changes, each answer of thousands of
    /// nodes belongs to many changes.
    only_counts: bool,
}

#[derive(Debug)]
struct Open {
    cause: Arc<Cause>,
    noted: SystemTime,
    published: Option<Published>,
    parts: Vec<SpanData>,
    shown: Vec<Arc<Delivered>>,
    answered: usize,
    failed: usize,
    last: Option<SystemTime>,
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
            answered: 0,
            failed: 0,
            last: None,
        };
        self.open.insert(trace, open);
        true
    }

    fn deliver(&mut self, delivered: Delivered) {
        for cause in &delivered.causes {
            if let Some(open) = self.open.get_mut(&cause.trace.trace) {
                open.count(&delivered);
            }
        }
        if self.only_counts {
            return;
        }
        let delivered = Arc::new(delivered);
        for cause in &delivered.causes {
            if let Some(open) = self.open.get_mut(&cause.trace.trace) {
                open.show(delivered.clone());
            }
        }
    }

    /// Changes that have ended, the oldest first, with their missing nodes. `waiting` returns the nodes that do not
    /// have a version of the plans in force; a node that waits for one version waits for all later ones.
    ///
    /// Notes that were sent before this call have to be added before [`Track::end`].
    pub(super) fn complete(
        &self,
        now: SystemTime,
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
            let missing = waiting(published.version);
            if missing.count > 0 && !is_over(published.at, now) {
                break;
            }
            complete.push((*trace, missing));
        }
        complete
    }

    /// Closes changes and returns those that were published.
    pub(super) fn end(&mut self, complete: Vec<([u8; 16], Waiting)>) -> Vec<Ended> {
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
    fn count(&mut self, delivered: &Delivered) {
        self.answered += 1;
        self.failed += usize::from(!delivered.answered.is_sound());
        self.last = self.last.max(Some(delivered.at));
    }

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
        Some(Ended {
            end: self.last.unwrap_or(published.at).max(published.at),
            cause: self.cause,
            published,
            parts: self.parts,
            shown,
            answered: self.answered,
            failed: self.failed,
            missing,
        })
    }
}

#[cfg(test)]
#[path = "track_tests.rs"]
pub(super) mod tests;
