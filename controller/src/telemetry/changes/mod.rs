//! Metrics and traces of changes, from the event in the cluster to the last node that has the change in force.
//!
//! The engine and the streams send notes of what they did and when. One task collects the notes, updates metrics and
//! builds traces. Senders never wait for the task: when its queue is full, notes are dropped and counted.
//!
//! Agents report durations in their answers instead of exporting spans. So nodes need no access to a collector, no
//! clocks are compared, and sampling is decided when the whole change is known.

mod delivered;
mod export;
mod figures;
mod layer;
mod sampling;
mod spans;
mod task;
mod track;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SpanData};
use portolan_proto::TraceContext;
use tokio::sync::mpsc;
use tracing::Span;

use crate::store::cause::{Cause, ChangeTimes};

pub use delivered::{Answered, Delivered};
pub use export::{Endpoint, EndpointError};
pub use figures::Figures;
pub use layer::{SPANS, layer};
pub use sampling::Sampling;
pub use task::Task;

/// Capacity of the queue of notes: more than a cluster of thousands of nodes sends in a second. A note takes at most
/// a few kilobytes. One that does not fit is dropped and counted.
const QUEUE_CAPACITY: usize = 8192;

/// An event in the life of a change.
#[derive(Debug)]
enum Note {
    /// Planning began.
    Begun(Arc<Cause>),
    /// A part of planning ended.
    SpanEnded(Box<SpanData>),
    /// The change was published.
    Published(Box<Published>),
    /// It changed no plan.
    NotPublished(TraceContext),
    /// A node answered a batch with it.
    Delivered(Box<Delivered>),
}

/// A published change.
#[derive(Debug)]
struct Published {
    trace: TraceContext,
    version: u64,
    services: usize,
    nodes: usize,
    at: SystemTime,
}

/// Sends notes of changes to the task.
#[derive(Clone, Default)]
pub struct Changes(Option<NoteSender>);

#[derive(Clone)]
struct NoteSender {
    notes: mpsc::Sender<Note>,
    traced: bool,
    figures: Arc<Figures>,
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Changes").finish_non_exhaustive()
    }
}

impl Changes {
    /// Creates the queue of notes. The receiver belongs to a [`Task`], which has to run. `traced` states whether traces
    /// are built from the notes.
    pub fn new(figures: Arc<Figures>, traced: bool) -> (Self, NoteReceiver) {
        let (notes, receiver) = mpsc::channel(QUEUE_CAPACITY);
        let sender = NoteSender {
            notes,
            traced,
            figures,
        };
        (Self(Some(sender)), NoteReceiver(receiver))
    }

    /// Begins a change whose planning starts now.
    pub fn begin(&self, times: ChangeTimes, changed: &str, now: SystemTime) -> Change {
        let cause = Arc::new(Cause {
            trace: new_trace(),
            triggered: times.triggered,
            seen: times.seen.unwrap_or(now),
            changed: changed.to_owned(),
        });
        self.note(Note::Begun(cause.clone()));
        Change {
            cause,
            changes: self.clone(),
            ended: false,
        }
    }

    /// Whether agents are asked for the timing of their passes.
    pub fn traced(&self) -> bool {
        self.0.as_ref().is_some_and(|sender| sender.traced)
    }

    /// Records that a node answered.
    pub fn delivered(&self, delivered: Delivered) {
        self.note(Note::Delivered(Box::new(delivered)));
    }

    fn span_ended(&self, span: SpanData) {
        self.note(Note::SpanEnded(Box::new(span)));
    }

    fn note(&self, note: Note) {
        if let Some(NoteSender { notes, figures, .. }) = &self.0
            && notes.try_send(note).is_err()
        {
            figures.left_out();
        }
    }
}

/// The receiver of notes, for the task.
#[derive(Debug)]
pub struct NoteReceiver(mpsc::Receiver<Note>);

/// A change that is being planned. If it is dropped without being published, it changed no plan.
#[derive(Debug)]
pub struct Change {
    cause: Arc<Cause>,
    changes: Changes,
    ended: bool,
}

impl Change {
    /// The cause of the change.
    pub fn cause(&self) -> &Arc<Cause> {
        &self.cause
    }

    /// Its trace, if tracing is on.
    pub fn traced(&self) -> Option<TraceContext> {
        self.changes.traced().then_some(self.cause.trace)
    }

    /// Makes a span a part of the change. The span's target has to be [`SPANS`].
    pub fn part(&self, span: Span) -> Span {
        layer::below(&span, self.cause.trace);
        span
    }

    /// Records that the change was published as this version of the plans, with the number of Services and nodes that
    /// differ.
    pub fn published(mut self, version: u64, services: usize, nodes: usize, at: SystemTime) {
        self.ended = true;
        let trace = self.cause.trace;
        let published = Published {
            trace,
            version,
            services,
            nodes,
            at,
        };
        self.changes.note(Note::Published(Box::new(published)));
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if !self.ended {
            self.changes.note(Note::NotPublished(self.cause.trace));
        }
    }
}

fn new_trace() -> TraceContext {
    TraceContext {
        trace: RandomIdGenerator::default().new_trace_id().to_bytes(),
        span: new_span(),
    }
}

/// A random ID for a span that is created later.
pub fn new_span() -> [u8; 8] {
    RandomIdGenerator::default().new_span_id().to_bytes()
}
