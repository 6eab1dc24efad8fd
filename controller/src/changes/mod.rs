//! Each change, from what happened in the cluster to the last node that has it in force.
//!
//! Whoever plans, sends and takes answers notes what it did and when; one task puts that together, counts
//! it and makes traces of it. Nobody waits for that task: when it is behind, notes are left out and
//! counted. Agents measure and do not export: they tell durations with their answers, so no collector has
//! to be reached from nodes, no clocks are compared, and what is kept is decided when all is known.

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

use crate::cause::{Came, Cause};

pub use delivered::{Answered, Delivered};
pub use export::{Endpoint, EndpointError};
pub use figures::Figures;
pub use layer::{SPANS, layer};
pub use sampling::Sampling;
pub use task::Task;

/// Notes on their way. Some kilobytes each at most; more than a cluster of thousands makes in a second.
const QUEUE: usize = 8192;

/// What happened to a change.
#[derive(Debug)]
enum Note {
    /// It is being planned.
    Begun(Arc<Cause>),
    /// A part of that was done.
    Did(Box<SpanData>),
    /// It is published.
    Published(Box<Published>),
    /// It changed no plan.
    Nothing(TraceContext),
    /// A node answered a batch with it.
    Delivered(Box<Delivered>),
}

/// A change that is published.
#[derive(Debug)]
struct Published {
    trace: TraceContext,
    version: u64,
    services: usize,
    nodes: usize,
    at: SystemTime,
}

/// Where notes of changes go.
#[derive(Clone, Default)]
pub struct Changes(Option<Noting>);

#[derive(Clone)]
struct Noting {
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
    /// Notes go to the task, which has to run. `traced` says whether traces are made of them.
    pub fn new(figures: Arc<Figures>, traced: bool) -> (Self, Notes) {
        let (notes, receiver) = mpsc::channel(QUEUE);
        let noting = Noting {
            notes,
            traced,
            figures,
        };
        (Self(Some(noting)), Notes(receiver))
    }

    /// Something changed, and is planned from now on.
    pub fn begin(&self, came: Came, changed: &str, now: SystemTime) -> Change {
        let cause = Arc::new(Cause {
            trace: new_trace(),
            triggered: came.triggered,
            seen: came.seen.unwrap_or(now),
            changed: changed.to_owned(),
        });
        self.note(Note::Begun(cause.clone()));
        Change {
            cause,
            changes: self.clone(),
            ended: false,
        }
    }

    /// Whether agents are asked what takes the time.
    pub fn traced(&self) -> bool {
        self.0.as_ref().is_some_and(|noting| noting.traced)
    }

    /// A node answered.
    pub fn delivered(&self, delivered: Delivered) {
        self.note(Note::Delivered(Box::new(delivered)));
    }

    fn did(&self, span: SpanData) {
        self.note(Note::Did(Box::new(span)));
    }

    fn note(&self, note: Note) {
        if let Some(Noting { notes, figures, .. }) = &self.0
            && notes.try_send(note).is_err()
        {
            figures.left_out();
        }
    }
}

/// What was noted, for the task.
#[derive(Debug)]
pub struct Notes(mpsc::Receiver<Note>);

/// A change that is being planned. Unless it is published it changed nothing.
#[derive(Debug)]
pub struct Change {
    cause: Arc<Cause>,
    changes: Changes,
    ended: bool,
}

impl Change {
    /// What it came from.
    pub fn cause(&self) -> &Arc<Cause> {
        &self.cause
    }

    /// Its trace, where there are traces.
    pub fn traced(&self) -> Option<TraceContext> {
        self.changes.traced().then_some(self.cause.trace)
    }

    /// Makes a part of it of a span. The span's target has to be [`SPANS`].
    pub fn part(&self, span: Span) -> Span {
        layer::below(&span, self.cause.trace);
        span
    }

    /// It led to this version of the plans, with so many Services and nodes that differ.
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
            self.changes.note(Note::Nothing(self.cause.trace));
        }
    }
}

fn new_trace() -> TraceContext {
    TraceContext {
        trace: RandomIdGenerator::default().new_trace_id().to_bytes(),
        span: new_span(),
    }
}

/// A name for a span that is still to be made.
pub fn new_span() -> [u8; 8] {
    RandomIdGenerator::default().new_span_id().to_bytes()
}
