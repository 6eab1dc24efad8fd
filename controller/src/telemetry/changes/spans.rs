//! Converts a change to OpenTelemetry spans.
//!
//! The spans of a node are centered between sending the batch and receiving its answer; the remaining time is the
//! network delay in both directions. So each span lies within its parent, whatever the clocks of the nodes are.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use portolan_proto::{TraceContext, wire};

use super::Delivered;
use super::track::Ended;

/// Maximum number of nodes without an answer that the status names.
const MAX_NAMED_NODES: usize = 5;

/// The spans of a change, grouped by process.
#[derive(Debug)]
pub(super) struct Drawn {
    /// Spans of the controller.
    pub(super) controller: Vec<SpanData>,
    /// Spans of each agent.
    pub(super) agents: Vec<(Arc<Delivered>, Vec<SpanData>)>,
}

/// Returns IDs of new spans.
pub(super) type NewSpan<'a> = &'a mut dyn FnMut() -> [u8; 8];

/// Converts a change to spans.
pub(super) fn draw(ended: &Ended, new_span: NewSpan<'_>) -> Drawn {
    let root = ended.cause.trace;
    let start = ended.cause.began();
    // The clock may have been set back in between.
    let end = ended.end.max(start);
    let frame = Frame { start, end };
    let mut drawn = Drawn {
        controller: vec![change(ended, frame)],
        agents: Vec::new(),
    };
    let seen = ended.cause.seen;
    if !ended.cause.triggered.is_empty() {
        let watch = frame.part(frame.start, seen);
        let at = Place::below(root, new_span());
        drawn.controller.push(at.span("watch", watch));
    }
    if let Some(first) = ended.parts.iter().map(|part| part.start_time).min() {
        let at = Place::below(root, new_span());
        drawn
            .controller
            .push(at.span("queue", frame.part(seen, first)));
    }
    let parts = ended.parts.iter().map(|part| {
        let time = frame.part(part.start_time, part.end_time);
        SpanData {
            parent_span_is_remote: false,
            start_time: time.start,
            end_time: time.end,
            ..part.clone()
        }
    });
    drawn.controller.extend(parts);
    for delivered in &ended.shown {
        deliver(ended, delivered, frame, &mut drawn, new_span);
    }
    drawn
}

/// The root span: the whole change.
fn change(ended: &Ended, frame: Frame) -> SpanData {
    let Ended {
        cause,
        published,
        missing,
        ..
    } = ended;
    let place = Place {
        trace: cause.trace.trace,
        parent: None,
        own: cause.trace.span,
    };
    let mut span = place.span("change", frame);
    span.span_kind = SpanKind::Consumer;
    span.attributes = vec![
        KeyValue::new("portolan.changed", cause.changed.clone()),
        number("portolan.version", published.version),
        count("portolan.services", published.services),
        count("portolan.nodes.replanned", published.nodes),
        count("portolan.nodes.answered", ended.answered),
        count("portolan.nodes.shown", ended.shown.len()),
        count("portolan.nodes.failed", ended.failed),
        count("portolan.nodes.missing", missing.count),
    ];
    if ended.has_failed() {
        let names: Vec<_> = missing
            .first
            .iter()
            .take(MAX_NAMED_NODES)
            .map(|n| &**n)
            .collect();
        let words = match (ended.failed, missing.count) {
            (0, _) => format!("no answer in time from {}", names.join(", ")),
            (failed, 0) => format!("not in force on {failed} of {} nodes", ended.answered),
            (failed, _) => format!(
                "not in force on {failed} of {} nodes; no answer in time from {}",
                ended.answered,
                names.join(", ")
            ),
        };
        span.status = Status::error(words);
    }
    span
}

/// The spans of a change on one node.
fn deliver(
    ended: &Ended,
    delivered: &Arc<Delivered>,
    whole: Frame,
    drawn: &mut Drawn,
    new_span: NewSpan<'_>,
) {
    let own = ended.cause.trace;
    // The spans of a batch belong to the trace of its oldest change, which waited longest.
    let oldest = delivered.causes.causes.first();
    let holder = oldest.map_or(own.trace, |oldest| oldest.trace.trace);
    let is_holder = holder == own.trace;
    let id = if is_holder {
        delivered.span
    } else {
        new_span()
    };
    let frame = whole.part(ended.published.at.min(delivered.made), delivered.at);
    let mut span = Place::below(own, id).span("deliver", frame);
    span.span_kind = SpanKind::Client;
    span.attributes = vec![
        KeyValue::new("k8s.node.name", delivered.node.to_string()),
        KeyValue::new("rpc.system.name", "grpc"),
        KeyValue::new("rpc.method", "portolan.plan.v1.PlanStream/Watch"),
        number("portolan.batch", delivered.batch),
        count("portolan.changes", delivered.causes.causes.len()),
    ];
    if !delivered.answered.is_sound() {
        span.attributes.push(KeyValue::new("error.type", "kernel"));
        span.status = failure(delivered);
    }
    if is_holder {
        let others = delivered.causes.causes.iter().skip(1);
        span.links = links(others.map(|cause| cause.trace));
        drawn.controller.push(span);
    } else {
        let batch = TraceContext {
            trace: holder,
            span: delivered.span,
        };
        span.links = links([batch].into_iter());
        drawn.controller.push(span);
        return;
    }
    let below = TraceContext { span: id, ..own };
    let turn = frame.part(frame.start, delivered.made);
    drawn
        .controller
        .push(Place::below(below, new_span()).span("turn", turn));
    let send = frame.part(delivered.made, delivered.handed);
    drawn
        .controller
        .push(Place::below(below, new_span()).span("send", send));
    if let Some(timing) = &delivered.answered.timing {
        let out = frame.part(delivered.handed, delivered.at);
        let spans = apply(delivered, timing, out, below, new_span);
        drawn.agents.push((delivered.clone(), spans));
    }
}

/// The spans of an agent's pass, centered within `out`.
fn apply(
    delivered: &Delivered,
    timing: &wire::Timing,
    out: Frame,
    below: TraceContext,
    new_span: NewSpan<'_>,
) -> Vec<SpanData> {
    let micros = Duration::from_micros;
    let total = micros(timing.total_microseconds).min(out.length());
    let start = out.start + (out.length() - total) / 2;
    let frame = Frame {
        start,
        end: start + total,
    };
    let own = TraceContext {
        span: new_span(),
        ..below
    };
    let mut apply = Place::below(below, own.span).span("apply", frame);
    apply.span_kind = SpanKind::Server;
    apply.parent_span_is_remote = true;
    let answered = &delivered.answered;
    apply.attributes = vec![
        number("portolan.operations", answered.operations),
        number("portolan.operations.failed", answered.failed),
    ];
    if !answered.is_sound() {
        apply.status = failure(delivered);
    }
    let began = frame.after(start, micros(timing.waited_microseconds));
    let wait = Frame { start, end: began };
    let mut spans = vec![apply, Place::below(own, new_span()).span("wait", wait)];
    for step in &timing.steps {
        let start = frame.after(began, micros(step.after_microseconds));
        let end = frame.after(start, micros(step.microseconds));
        let place = Place::below(own, new_span());
        let mut span = place.span(step.name.clone(), Frame { start, end });
        span.attributes = vec![number("portolan.operations", step.operations)];
        if step.failed > 0 {
            let failed = number("portolan.operations.failed", step.failed);
            span.attributes.push(failed);
            span.status = Status::error("operations failed or were held back");
        }
        spans.push(span);
    }
    spans
}

fn failure(delivered: &Delivered) -> Status {
    let answered = &delivered.answered;
    let words = match &answered.failure {
        _ if answered.refused => "the batch did not lead to the announced plan".to_owned(),
        Some(failure) => failure.clone(),
        None => "operations failed".to_owned(),
    };
    Status::error(words)
}

/// A time interval.
#[derive(Debug, Clone, Copy)]
struct Frame {
    start: SystemTime,
    end: SystemTime,
}

impl Frame {
    fn length(self) -> Duration {
        self.end.duration_since(self.start).unwrap_or_default()
    }

    /// The part of an interval within this one; empty, at one end of it, if they do not overlap.
    fn part(self, start: SystemTime, end: SystemTime) -> Self {
        let last = self.end.max(self.start);
        let start = start.clamp(self.start, last);
        Self {
            start,
            end: end.clamp(start, last),
        }
    }

    /// The time `by` after `moment`, but not after the end of the interval.
    fn after(self, moment: SystemTime, by: Duration) -> SystemTime {
        moment
            .checked_add(by)
            .map_or(self.end, |at| at.min(self.end))
    }
}

/// The position of a span in its trace.
#[derive(Debug, Clone, Copy)]
struct Place {
    trace: [u8; 16],
    parent: Option<[u8; 8]>,
    own: [u8; 8],
}

impl Place {
    fn below(parent: TraceContext, own: [u8; 8]) -> Self {
        Self {
            trace: parent.trace,
            parent: Some(parent.span),
            own,
        }
    }

    fn span(self, name: impl Into<Cow<'static, str>>, time: Frame) -> SpanData {
        let parent = self.parent.map_or(SpanId::INVALID, SpanId::from_bytes);
        SpanData {
            span_context: context(self.trace, self.own),
            parent_span_id: parent,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time: time.start,
            end_time: time.end,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: scope(),
        }
    }
}

/// The instrumentation scope of all spans.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("portolan").build()
}

/// The context by which other spans refer to a span.
pub(super) fn context(trace: [u8; 16], span: [u8; 8]) -> SpanContext {
    let (trace, span) = (TraceId::from_bytes(trace), SpanId::from_bytes(span));
    SpanContext::new(
        trace,
        span,
        TraceFlags::SAMPLED,
        false,
        TraceState::default(),
    )
}

fn links(of: impl Iterator<Item = TraceContext>) -> SpanLinks {
    let mut links = SpanLinks::default();
    let to = |other: TraceContext| Link::with_context(context(other.trace, other.span));
    links.links.extend(of.map(to));
    links
}

fn number(key: &'static str, value: u64) -> KeyValue {
    KeyValue::new(key, i64::try_from(value).unwrap_or(i64::MAX))
}

fn count(key: &'static str, value: usize) -> KeyValue {
    KeyValue::new(key, i64::try_from(value).unwrap_or(i64::MAX))
}

#[cfg(test)]
#[path = "spans_tests.rs"]
mod tests;
