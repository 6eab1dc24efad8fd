//! Checks for the chart's Jobs and its test: whether a task is done on each node, whether agents have ended, whether
//! an installation works.
//!
//! Touches: the API server, for reading.

mod check;
mod each_node;

use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use tokio::time::{Instant, sleep};

pub use check::check;
pub use each_node::{Nodes, State};

/// Interval between two reads of the objects.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Waits until a DaemonSet's task is done, or has failed `tries` times, on each node. Returns the progress.
///
/// # Errors
/// If the DaemonSet does not exist or cannot be read.
pub async fn each_node(
    client: &Client,
    namespace: &str,
    set: &str,
    tries: i32,
    limit: Duration,
) -> anyhow::Result<Nodes> {
    let deadline = Instant::now() + limit;
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    loop {
        let found = sets.get(set).await;
        let found = found.with_context(|| format!("read DaemonSet {namespace}/{set}"))?;
        let selected = ListParams::default().labels(&selector(&found));
        let listed = pods.list(&selected).await;
        let listed = listed.with_context(|| format!("list pods in {namespace}"))?;
        let nodes = Nodes::of(&found, &listed.items, tries);
        if nodes.are_decided() || Instant::now() >= deadline {
            return Ok(nodes);
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Waits until no pod has these labels.
///
/// # Errors
/// If pods cannot be read, or some still exist after the timeout.
pub async fn gone(
    client: &Client,
    namespace: &str,
    labels: &str,
    limit: Duration,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + limit;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let selected = ListParams::default().labels(labels);
    loop {
        let listed = pods.list(&selected).await;
        let listed = listed.with_context(|| format!("list pods in {namespace}"))?;
        let Some(first) = listed.items.first() else {
            return Ok(());
        };
        if Instant::now() >= deadline {
            bail!(
                "{} pods with labels {labels} still exist in {namespace}, the first {}; `kubectl describe pod` shows what \
                 keeps it",
                listed.items.len(),
                first.name_any()
            );
        }
        sleep(POLL_INTERVAL).await;
    }
}

fn selector(set: &DaemonSet) -> String {
    let pairs = set.spec.selector.match_labels.iter().flatten();
    let pairs: Vec<_> = pairs
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join(",")
}
