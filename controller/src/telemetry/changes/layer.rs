//! Parts of planning as `tracing` spans. Log messages within a span become its events.

use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, Span, SpanData, SpanProcessor};
use portolan_proto::TraceContext;
use tracing::{Level, Metadata, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use super::{Changes, spans};

/// The target of spans that are parts of a change.
pub const SPANS: &str = "portolan_controller::telemetry::changes::spans";

/// A layer that sends spans of [`SPANS`], with the log messages within them, to the task that collects notes.
pub fn layer<S>(changes: Changes) -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let provider = SdkTracerProvider::builder()
        .with_span_processor(Parts(changes))
        .build();
    let tracer = provider.tracer_with_scope(spans::scope());
    tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(is_wanted))
}

fn is_wanted(of: &Metadata<'_>) -> bool {
    if of.is_span() {
        of.target() == SPANS
    } else {
        of.target().starts_with("portolan_controller") && *of.level() <= Level::INFO
    }
}

/// Makes the root span of a change the parent of a span.
pub(super) fn below(span: &tracing::Span, change: TraceContext) {
    let parent = spans::context(change.trace, change.span);
    // This fails without the layer, and then there is no trace to add to.
    drop(span.set_parent(Context::new().with_remote_span_context(parent)));
}

/// Sends ended spans as notes.
#[derive(Debug)]
struct Parts(Changes);

impl SpanProcessor for Parts {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.0.span_ended(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}
