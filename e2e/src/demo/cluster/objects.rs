//! A watch of the Service's slices and the nodes' zones, and the endpoints that follow for each
//! node's kernel. It runs on its own thread and ends when dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Node as NodeObject;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::runtime::Runtime;

use super::history::{Endpoints, Latest};
use super::wanted;
use crate::control_plane::kubelet;
use crate::topology::world::Node;

const ZONE: &str = "topology.kubernetes.io/zone";

/// The watches.
pub(super) struct Objects {
    shared: Arc<Shared>,
    /// In an option so that dropping can end its thread.
    runtime: Option<Runtime>,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Seen>,
    wanted: BTreeMap<Node, Latest>,
}

#[derive(Debug, Default)]
struct Seen {
    slices: BTreeMap<String, EndpointSlice>,
    zones: BTreeMap<String, Option<String>>,
    trouble: Option<String>,
}

impl Objects {
    /// Watches the slices of a Service of the namespace `default`, and all nodes.
    pub(super) fn watch(kubeconfig: &Path, service: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("objects")
            .enable_all()
            .build()
            .context("start the thread that watches objects")?;
        let client = runtime.block_on(kubelet::client(kubeconfig))?;
        let wanted = Node::ALL.map(|node| (node, Latest::default())).into();
        let seen = Mutex::default();
        let shared = Arc::new(Shared { seen, wanted });
        let selector = format!("kubernetes.io/service-name={service}");
        drop(runtime.spawn(run(client, selector, Arc::clone(&shared))));
        let runtime = Some(runtime);
        Ok(Self { shared, runtime })
    }

    /// The endpoints that new connections on a node should reach.
    pub(super) fn wanted(&self, node: Node) -> &Latest {
        &self.shared.wanted[&node]
    }

    /// The zone of a node's object.
    pub(super) fn zone(&self, node: Node) -> Option<String> {
        self.shared
            .with(|seen| seen.zones.get(node.name())?.clone())
    }

    /// All ready endpoints, whatever their hints.
    pub(super) fn ready(&self) -> Endpoints {
        self.shared
            .with(|seen| wanted::endpoints(seen.slices.values(), None))
    }

    /// The last error of the watch.
    pub(super) fn trouble(&self) -> Option<String> {
        self.shared.with(|seen| seen.trouble.clone())
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    fn with<T>(&self, read: impl FnOnce(&mut Seen) -> T) -> T {
        read(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes what was seen, and works out what follows for each node. Both at once: a reader must not find new slices
    /// beside old endpoints.
    fn change(&self, change: impl FnOnce(&mut Seen)) {
        self.with(|seen| {
            change(seen);
            for (node, latest) in &self.wanted {
                // Until the node is known, nothing can be said.
                if let Some(zone) = seen.zones.get(node.name()) {
                    latest.set(wanted::endpoints(seen.slices.values(), zone.as_deref()));
                }
            }
        });
    }
}

/// Runs until it is dropped.
async fn run(client: Client, selector: String, shared: Arc<Shared>) {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let config = watcher::Config::default().labels(&selector);
    let slices = watcher(slices, config).default_backoff();
    let nodes: Api<NodeObject> = Api::all(client);
    let nodes = watcher(nodes, watcher::Config::default()).default_backoff();
    let of_slices = follow(slices, &shared, |seen, name, object| match object {
        Some(slice) => drop(seen.slices.insert(name, slice)),
        None => drop(seen.slices.remove(&name)),
    });
    let of_nodes = follow(nodes, &shared, |seen, name, object| {
        match object.map(|node: NodeObject| node.labels().get(ZONE).cloned()) {
            Some(zone) => drop(seen.zones.insert(name, zone)),
            None => drop(seen.zones.remove(&name)),
        }
    });
    futures::join!(of_slices, of_nodes);
}

/// Calls `change` for every object, and with its name for every deleted one.
async fn follow<K: kube::Resource>(
    stream: impl Stream<Item = watcher::Result<Event<K>>>,
    shared: &Shared,
    change: impl Fn(&mut Seen, String, Option<K>),
) {
    let mut stream = std::pin::pin!(stream);
    let (mut known, mut listed) = (BTreeSet::new(), BTreeSet::new());
    while let Some(event) = stream.next().await {
        shared.change(|seen| match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                listed.insert(object.name_any());
                change(seen, object.name_any(), Some(object));
            }
            Ok(Event::InitDone) => {
                for gone in known.difference(&listed) {
                    change(seen, String::clone(gone), None);
                }
                known.clone_from(&listed);
            }
            Ok(Event::Apply(object)) => {
                known.insert(object.name_any());
                change(seen, object.name_any(), Some(object));
            }
            Ok(Event::Delete(object)) => {
                known.remove(&object.name_any());
                change(seen, object.name_any(), None);
            }
            Err(error) => seen.trouble = Some(error.to_string()),
        });
    }
}
