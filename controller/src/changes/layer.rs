//! Parts of planning as `tracing` spans: what is said meanwhile becomes an event of the span.

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
pub const SPANS: &str = "portolan_controller::changes::spans";

/// Hands spans of [`SPANS`], with what is logged within them, to whoever follows changes.
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

/// Puts a span below the one that holds a change.
pub(super) fn below(span: &tracing::Span, change: TraceContext) {
    let parent = spans::context(change.trace, change.span);
    // Without the layer there is nothing to put below anything.
    drop(span.set_parent(Context::new().with_remote_span_context(parent)));
}

/// Takes spans that have ended.
#[derive(Debug)]
struct Parts(Changes);

impl SpanProcessor for Parts {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.0.did(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}
