//! Cost of the same changes if every node watches the API server, as kube-proxy does: the events that it sends to one
//! such watch, in protobuf as kube-proxy requests it, measured on a real server.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http_body_util::BodyExt as _;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, ListParams};
use kube::client::Body;
use serde::Serialize;
use tokio::time::timeout;

use super::CHURN;
use super::objects::{self, LARGE, PROBE, Size};
use super::report::Figures;

/// The Accept header of kube-proxy.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf;stream=watch";
/// The type of such an event.
const CHANGED: &[u8] = b"MODIFIED";
/// Until an event comes.
const LIMIT: Duration = Duration::from_secs(30);

/// Bytes sent to the watches of all nodes.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Watches {
    /// Number of watches.
    watches: u32,
    encoding: &'static str,
    /// An event for one watch: one endpoint of a small Service moves.
    bytes_small: usize,
    /// The same of one endpoint of the large list: the slice that it is in.
    bytes_large: usize,
    /// All watches together, for one such change.
    mb_small: f64,
    mb_large: f64,
    /// At the given rate of changes.
    events_per_s: f64,
    mb_per_s: f64,
}

impl Watches {
    /// Changes an endpoint of each and looks at the event.
    pub(super) async fn measure(client: &Client, size: Size, generation: &mut u32) -> Result<Self> {
        let bytes_small = event(client, size, PROBE, size.endpoints, generation).await?;
        let bytes_large = event(client, size, LARGE, 100, generation).await?;
        let of_all = |bytes: usize| {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            f64::from(bytes) * f64::from(size.nodes) / 1e6
        };
        #[allow(clippy::cast_precision_loss, reason = "a small number")]
        let changes = CHURN as f64;
        Ok(Self {
            watches: size.nodes,
            encoding: "protobuf",
            bytes_small,
            bytes_large,
            mb_small: of_all(bytes_small),
            mb_large: of_all(bytes_large),
            events_per_s: changes * f64::from(size.nodes),
            mb_per_s: changes * of_all(bytes_small),
        })
    }

    /// For people, beside what was measured of the stream.
    pub(super) fn in_words(&self, figures: &Figures) -> String {
        let Self {
            watches,
            bytes_small,
            bytes_large,
            mb_small,
            mb_large,
            events_per_s,
            mb_per_s,
            ..
        } = self;
        let nodes = f64::from(figures.agents);
        format!(
            "{watches} watches of EndpointSlices in protobuf would be sent {bytes_small} bytes each ({mb_small:.1} MB in all) \
             for the small change, the stream sends {:.0} ({:.1} MB); {bytes_large} ({mb_large:.1} MB) for the large, \
             the stream {:.0} ({:.1} MB); at {CHURN} changes a second {events_per_s:.0} events and {mb_per_s:.1} MB a \
             second, the stream sent {:.0} batches and {:.1} MB a second at {:.0} changes",
            figures.bytes_per_agent_small,
            figures.bytes_per_agent_small * nodes / 1e6,
            figures.bytes_per_agent_large,
            figures.bytes_per_agent_large * nodes / 1e6,
            figures.churn.batches_per_s,
            figures.churn.mb_per_s,
            figures.churn.per_s,
        )
    }
}

/// How many bytes a watch is sent when an endpoint of a Service moves, before TLS and HTTP.
async fn event(
    client: &Client,
    size: Size,
    service: &str,
    count: u32,
    generation: &mut u32,
) -> Result<usize> {
    let name = objects::slice_name(service, 0);
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    // Of the whole kind: where other objects have changed often, that of this one is too old to begin at.
    let listed = slices.list(&ListParams::default().limit(1)).await?;
    let version = listed.metadata.resource_version;
    let version = version.context("a list without a version")?;
    let path = format!(
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?watch=true&fieldSelector=metadata.name%3D{name}&resourceVersion={version}"
    );
    let request = http::Request::get(path).header(http::header::ACCEPT, PROTOBUF);
    let answer = client.send(request.body(Body::empty())?).await?;
    let kind = answer.headers().get(http::header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    ensure!(
        answer.status().is_success() && kind.contains("protobuf"),
        "watch {name}: {}, {kind:?}",
        answer.status()
    );
    *generation += 1;
    objects::change(client, size, service, 0, count, *generation).await?;
    let mut body = answer.into_body();
    let mut read = Vec::new();
    loop {
        if let Some(length) = whole(&read) {
            let mut words = read.windows(CHANGED.len());
            ensure!(
                words.any(|word| word == CHANGED),
                "no change of {name} came"
            );
            return Ok(length);
        }
        let frame = timeout(LIMIT, body.frame()).await.context("no event")?;
        let frame = frame.context("the watch ended")??;
        read.extend(frame.into_data().unwrap_or_default());
    }
}

/// The length of the first event including its four length bytes, once it is complete.
fn whole(read: &[u8]) -> Option<usize> {
    let (length, rest) = read.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    (rest.len() >= length).then_some(length + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_whole_with_all_of_its_bytes() {
        assert_eq!(whole(&[0, 0, 0]), None);
        assert_eq!(whole(&[0, 0, 0, 2, 1]), None);
        assert_eq!(whole(&[0, 0, 0, 2, 1, 1, 0]), Some(6));
    }
}
