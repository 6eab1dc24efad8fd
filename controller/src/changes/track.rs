//! Puts together what was noted of each change, until the last node has it. Pure: notes, what the board
//! says and times come in.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry_sdk::trace::SpanData;

use super::{Delivered, Note, Published};
use crate::cause::Cause;

/// So many changes are followed at once. More come only while nodes cannot keep up, and those followed
/// show that.
const MOST_OPEN: usize = 1024;
/// So many nodes are remembered of a change: the ones where something failed, then the slowest.
const SHOWN: usize = 16;
/// So many parts of planning are remembered.
const MOST_PARTS: usize = 32;
/// A node that did not answer for so long is not waited for any more.
const GIVE_UP: Duration = Duration::from_secs(30);

/// Who is still waited for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    /// How many.
    pub(super) count: usize,
    /// The first few.
    pub(super) first: Vec<Arc<str>>,
}

/// All changes that have not ended.
#[derive(Debug, Default)]
pub(super) struct Track {
    /// In the order of their versions.
    order: VecDeque<[u8; 16]>,
    open: BTreeMap<[u8; 16], Open>,
    /// Whether nobody looks at single nodes. Then none is remembered: while many changes come, each answer
    /// of thousands of nodes is about many of them.
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

/// A change that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) cause: Arc<Cause>,
    pub(super) published: Published,
    /// What was done to plan it.
    pub(super) parts: Vec<SpanData>,
    /// Nodes with it.
    pub(super) shown: Vec<Arc<Delivered>>,
    /// How many nodes answered a batch with it.
    pub(super) answered: usize,
    /// On how many of them something failed.
    pub(super) failed: usize,
    /// Who has not answered.
    pub(super) missing: Waiting,
    /// When the last node answered; without any when it was published.
    pub(super) end: SystemTime,
}

impl Ended {
    /// From what triggered it to the last answer.
    pub(super) fn took(&self) -> Duration {
        let took = self.end.duration_since(self.cause.began());
        took.unwrap_or_default()
    }

    /// Whether it is not in force everywhere.
    pub(super) fn has_failed(&self) -> bool {
        self.failed > 0 || self.missing.count > 0
    }
}

impl Track {
    /// One that remembers no node.
    pub(super) fn only_counting() -> Self {
        Self {
            only_counts: true,
            ..Self::default()
        }
    }

    /// Whether nothing is followed.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes a note. False for a change that is not followed, because too many are.
    pub(super) fn take(&mut self, note: Note, now: SystemTime) -> bool {
        match note {
            Note::Begun(cause) => return self.begin(cause, now),
            Note::Did(span) => {
                let trace = span.span_context.trace_id().to_bytes();
                if let Some(open) = self.open.get_mut(&trace)
                    && open.parts.len() < MOST_PARTS
                {
                    open.parts.push(*span);
                }
            }
            Note::Published(published) => {
                if let Some(open) = self.open.get_mut(&published.trace.trace) {
                    open.published = Some(*published);
                }
            }
            Note::Nothing(context) => {
                self.open.remove(&context.trace);
                self.order.retain(|trace| *trace != context.trace);
            }
            Note::Delivered(delivered) => self.deliver(*delivered),
        }
        true
    }

    fn begin(&mut self, cause: Arc<Cause>, now: SystemTime) -> bool {
        if self.open.len() >= MOST_OPEN {
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

    /// Which changes have ended, the oldest first, with who is missing on the nodes. `waiting` tells who
    /// has not a version of the plans in force; who waits for one waits for all that follow.
    ///
    /// Notes that were written before this are to be taken before [`Track::end`].
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
                // Its note may have been left out.
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

    /// Ends changes.
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

/// Also where the clock was put back by as much: nothing is followed for hours because of that.
fn is_over(since: SystemTime, now: SystemTime) -> bool {
    let apart = now.duration_since(since);
    apart.unwrap_or_else(|back| back.duration()) >= GIVE_UP
}

impl Open {
    fn count(&mut self, delivered: &Delivered) {
        self.answered += 1;
        self.failed += usize::from(!delivered.answered.is_sound());
        self.last = self.last.max(Some(delivered.at));
    }

    fn show(&mut self, delivered: Arc<Delivered>) {
        self.shown.push(delivered);
        if self.shown.len() > SHOWN {
            let rank = |delivered: &Arc<Delivered>| (!delivered.answered.is_sound(), delivered.at);
            let least = self.shown.iter().enumerate().min_by_key(|(_, d)| rank(d));
            if let Some((least, _)) = least {
                self.shown.swap_remove(least);
            }
        }
    }

    /// `None` if it is not known to have been published.
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
