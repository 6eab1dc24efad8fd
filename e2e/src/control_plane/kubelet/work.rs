//! The kubelet's loop: watches pods and nodes, and keeps a bounded number of requests in flight.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::task::JoinSet;

use super::{Shared, requests};

/// Requests at the same time.
const IN_FLIGHT: usize = 32;
/// Between two attempts to watch while the API server is away.
const PAUSE: Duration = Duration::from_millis(250);
/// When nothing is due; any will do.
const IDLE: Duration = Duration::from_secs(3600);

/// The same pause every time: servers here come back within seconds.
struct SamePause;

impl Iterator for SamePause {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(PAUSE)
    }
}

impl Backoff for SamePause {
    fn reset(&mut self) {}
}

type Watch<K> = std::pin::Pin<Box<dyn Stream<Item = watcher::Result<Event<K>>> + Send>>;

/// Runs until it is dropped.
pub(super) async fn run(client: Client, shared: Arc<Shared>) {
    let config = watcher::Config::default;
    let mut pods: Watch<Pod> =
        Box::pin(watcher(Api::all(client.clone()), config()).backoff(SamePause));
    let mut nodes: Watch<Node> =
        Box::pin(watcher(Api::all(client.clone()), config()).backoff(SamePause));
    let (mut listed_pods, mut listed_nodes) = (BTreeSet::new(), BTreeSet::new());
    let mut requests = JoinSet::new();
    loop {
        let next_due = start_due(&client, &shared, &mut requests);
        tokio::select! {
            Some(event) = pods.next() => match event {
                Ok(event) => pod_event(&shared, event, &mut listed_pods),
                Err(error) => trouble(&shared, "pods", &error),
            },
            Some(event) = nodes.next() => match event {
                Ok(event) => node_event(&shared, event, &mut listed_nodes),
                Err(error) => trouble(&shared, "nodes", &error),
            },
            Some(answer) = requests.join_next() => {
                // A request that panicked leaves its pod as it is; none does.
                if let Ok((work, result)) = answer {
                    shared.pods().done(work, result, Instant::now());
                }
            }
            () = tokio::time::sleep_until(next_due.into()) => {}
            () = shared.changed.notified() => {}
        }
    }
}

/// Starts what is due as long as there is room, and says when to look again.
fn start_due(
    client: &Client,
    shared: &Shared,
    requests: &mut JoinSet<(super::pods::Work, Result<(), String>)>,
) -> Instant {
    let now = Instant::now();
    let mut pods = shared.pods();
    while requests.len() < IN_FLIGHT {
        let Some(work) = pods.next(now) else {
            return pods.next_due().unwrap_or(now + IDLE);
        };
        requests.spawn(requests::carry_out(client.clone(), work));
    }
    // An answer comes first.
    now + IDLE
}

fn pod_event(shared: &Shared, event: Event<Pod>, listed: &mut BTreeSet<String>) {
    let now = Instant::now();
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(pod) => {
            listed.extend(pod.uid());
            if let Some(seen) = requests::seen(&pod) {
                shared.pods().pod(seen, now);
            }
        }
        Event::InitDone => shared.pods().only(listed),
        Event::Apply(pod) => {
            if let Some(seen) = requests::seen(&pod) {
                shared.pods().pod(seen, now);
            }
        }
        Event::Delete(pod) => {
            if let Some(uid) = pod.uid() {
                shared.pods().gone(&uid);
            }
        }
    }
}

fn node_event(shared: &Shared, event: Event<Node>, listed: &mut BTreeSet<String>) {
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(node) => {
            listed.insert(node.name_any());
            let seen = requests::seen_node(&node);
            shared.pods().node(&node.name_any(), Some(seen));
        }
        Event::InitDone => shared.pods().only_nodes(listed),
        Event::Apply(node) => {
            let seen = requests::seen_node(&node);
            shared.pods().node(&node.name_any(), Some(seen));
        }
        Event::Delete(node) => shared.pods().node(&node.name_any(), None),
    }
}

fn trouble(shared: &Shared, what: &str, error: &watcher::Error) {
    shared.pods().trouble = Some(format!("watching {what}: {error}"));
}
