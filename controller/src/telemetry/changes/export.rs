//! Export of traces by OTLP over gRPC. While the collector is unavailable, traces are lost; nothing else is affected.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::trace::v1::ResourceSpans;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::transport::{Channel, Uri};
use tracing::{info, warn};

use super::Figures;
use super::spans::Drawn;

/// Capacity of the queue of traces. A trace that does not fit is dropped and counted.
const QUEUE_CAPACITY: usize = 64;
/// Maximum number of traces in one request. It stays far below the message size limits of collectors.
const MAX_TRACES_PER_REQUEST: u64 = 8;
/// Timeout of one request to the collector.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// The URL of an OTLP collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(Uri);

/// An invalid endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EndpointError {
    /// The text is not a URL of a collector.
    #[error(
        "{text:?} is not the URL of a collector; write http://HOST:PORT, usually with port 4317"
    )]
    Syntax {
        /// The invalid text.
        text: String,
    },
    /// The scheme is `https`; only plain HTTP/2 is supported.
    #[error(
        "{text:?}: traces are exported over plain http only; run a collector on this machine and write \
         http://127.0.0.1:4317"
    )]
    Scheme {
        /// The invalid text.
        text: String,
    },
}

impl std::str::FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let uri: Uri = text
            .parse()
            .map_err(|_| EndpointError::Syntax { text: text.into() })?;
        match (uri.scheme_str(), uri.authority()) {
            (Some("http"), Some(_)) => Ok(Self(uri)),
            (Some("https"), Some(_)) => Err(EndpointError::Scheme { text: text.into() }),
            _ => Err(EndpointError::Syntax { text: text.into() }),
        }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Queues traces for export.
#[derive(Debug, Clone)]
pub(super) struct Exporter {
    queue: mpsc::Sender<Vec<ResourceSpans>>,
    figures: Arc<Figures>,
    own: Resource,
}

impl Exporter {
    /// Starts a task that sends traces to `endpoint`, with `own_name` as the name of this controller.
    pub(super) fn start(endpoint: Endpoint, own_name: &str, figures: Arc<Figures>) -> Self {
        let (queue, traces) = mpsc::channel(QUEUE_CAPACITY);
        let sending = send(endpoint, traces, figures.clone());
        // The task ends when the last sender of its queue is dropped.
        drop(tokio::spawn(sending));
        Self {
            queue,
            figures,
            own: resource(
                "portolan-controller",
                env!("CARGO_PKG_VERSION"),
                own_name,
                None,
            ),
        }
    }

    /// Queues a trace. If the queue is full, the trace is dropped and counted as failed.
    pub(super) fn take(&self, drawn: Drawn) {
        let mut spans = group_spans_by_resource_and_scope(drawn.controller, &(&self.own).into());
        for (delivered, own) in drawn.agents {
            let (version, node) = (&*delivered.agent_version, &*delivered.node);
            let resource = resource("portolan-agent", version, node, Some(node));
            spans.extend(group_spans_by_resource_and_scope(own, &(&resource).into()));
        }
        if self.queue.try_send(spans).is_err() {
            self.figures.exported(1, false);
        }
    }
}

/// The OpenTelemetry resource of a process: the controller or an agent.
fn resource(name: &'static str, version: &str, instance: &str, node: Option<&str>) -> Resource {
    let node = node.map(|node| KeyValue::new("k8s.node.name", node.to_owned()));
    let known = [
        KeyValue::new("service.name", name),
        KeyValue::new("service.version", version.to_owned()),
        KeyValue::new("service.instance.id", instance.to_owned()),
    ];
    let all = known.into_iter().chain(node);
    Resource::builder_empty().with_attributes(all).build()
}

async fn send(
    endpoint: Endpoint,
    mut traces: mpsc::Receiver<Vec<ResourceSpans>>,
    figures: Arc<Figures>,
) {
    let channel = Channel::builder(endpoint.0.clone()).connect_lazy();
    let mut client = TraceServiceClient::new(channel);
    let mut troubled = false;
    while let Some(first) = traces.recv().await {
        let (mut resource_spans, mut count) = (first, 1);
        while count < MAX_TRACES_PER_REQUEST
            && let Ok(more) = traces.try_recv()
        {
            resource_spans.extend(more);
            count += 1;
        }
        let request = ExportTraceServiceRequest { resource_spans };
        let problem = match timeout(EXPORT_TIMEOUT, client.export(request)).await {
            Ok(Ok(_)) => None,
            Ok(Err(status)) => Some(status.to_string()),
            Err(_) => Some(format!("no answer within {} s", EXPORT_TIMEOUT.as_secs())),
        };
        figures.exported(count, problem.is_none());
        match problem {
            Some(problem) if !std::mem::replace(&mut troubled, true) => lost(&endpoint, &problem),
            None if std::mem::take(&mut troubled) => info!(%endpoint, "trace export recovered"),
            Some(_) | None => {}
        }
    }
}

fn lost(endpoint: &Endpoint, problem: &str) {
    warn!(
        %endpoint, problem,
        "traces are lost: the collector does not accept them; check that it listens there for OTLP over gRPC"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_plain_url_and_an_error_names_the_expected_form() {
        let good: Endpoint = "http://127.0.0.1:4317".parse().unwrap();
        assert_eq!(good.to_string(), "http://127.0.0.1:4317/");
        for (wrong, word) in [
            ("", "http://HOST:PORT"),
            ("127.0.0.1:4317", "http://HOST:PORT"),
            ("http://", "http://HOST:PORT"),
            ("grpc://collector:4317", "http://HOST:PORT"),
            ("https://collector:4317", "plain http"),
        ] {
            let error = wrong.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(word), "{wrong:?}: {error}");
        }
    }
}
