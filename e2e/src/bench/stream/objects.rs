//! The cluster of the benchmark: nodes in three zones, Services, and their endpoints.

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::misbehaving;

/// The Service whose endpoint change is measured.
pub(super) const PROBE: &str = "probe";
/// The one with a list of 5,000.
pub(super) const LARGE: &str = "large";
/// Its endpoints.
pub(super) const LARGE_ENDPOINTS: u32 = 5_000;
/// How many endpoints Kubernetes puts into a slice.
const IN_SLICE: u32 = 100;
/// Requests in flight.
pub(super) const AT_ONCE: usize = 32;

/// The name of a node, from 1.
pub(super) fn node_name(number: u32) -> String {
    format!("node-{number}")
}

/// How large the cluster is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) nodes: u32,
    pub(super) services: u32,
    pub(super) endpoints: u32,
}

/// Creates all objects in the API server.
pub(super) async fn create(client: &Client, size: Size) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let objects = (1..=size.nodes + misbehaving::AGENTS).map(node);
    all(&nodes, objects).await?;
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    let names = (0..size.services).map(service_name);
    let names = names.chain([PROBE, LARGE].map(str::to_owned));
    all(&services, names.map(|name| service(&name))).await?;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let small = (0..size.services).map(|number| {
        let endpoints = endpoints(size, number * size.endpoints, size.endpoints, 0);
        slice(&service_name(number), 0, &endpoints)
    });
    let probe = slice(PROBE, 0, &endpoints(size, 0, size.endpoints, 0));
    let large = (0..LARGE_ENDPOINTS / IN_SLICE)
        .map(|part| slice(LARGE, part, &endpoints(size, part * IN_SLICE, IN_SLICE, 0)));
    all(&slices, small.chain([probe]).chain(large)).await
}

/// Creates objects, many at a time.
pub(in crate::bench) async fn all<K>(
    api: &Api<K>,
    objects: impl Iterator<Item = Value>,
) -> Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let create = |object: Value| async move {
        let object: K = serde_json::from_value(object).context("an object of the bench")?;
        api.create(&PostParams::default(), &object).await?;
        anyhow::Ok(())
    };
    let created = futures::stream::iter(objects).map(create);
    created.buffer_unordered(AT_ONCE).try_collect().await
}

/// The name of a Service, from 0.
pub(super) fn service_name(number: u32) -> String {
    format!("service-{number}")
}

/// The slice of a Service.
pub(super) fn slice_name(service: &str, part: u32) -> String {
    format!("{service}-{part}")
}

fn node(number: u32) -> Value {
    let [_, a, b, c] = number.to_be_bytes();
    let [_, high, low, _] = (number << 8).to_be_bytes();
    json!({
        "metadata": {
            "name": node_name(number),
            "labels": {"topology.kubernetes.io/zone": format!("zone-{}", number % 3)},
        },
        "spec": {"podCIDR": format!("10.{}.{low}.0/24", 64 + high), "podCIDRs": [format!("10.{}.{low}.0/24", 64 + high)]},
        "status": {"addresses": [{"type": "InternalIP", "address": format!("172.{}.{b}.{c}", 16 + a)}]},
    })
}

fn service(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
    })
}

/// Endpoints from a number on; another `generation` has another last address.
pub(super) fn endpoints(size: Size, from: u32, count: u32, generation: u32) -> Value {
    let one = |number: u32| {
        let last = number + 1 == from + count;
        let place = from + number + if last { generation } else { 0 };
        let [_, a, b, c] = place.to_be_bytes();
        let node = number % size.nodes + 1;
        json!({
            "addresses": [format!("10.{}.{b}.{c}", 128 + a + if last { 64 } else { 0 })],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "nodeName": node_name(node), "zone": format!("zone-{}", node % 3),
            "targetRef": {"kind": "Pod", "namespace": "default", "name": format!("pod-{number}")},
        })
    };
    (from..from + count).map(one).collect()
}

fn slice(service: &str, part: u32, endpoints: &Value) -> Value {
    json!({
        "metadata": {
            "name": slice_name(service, part),
            "labels": {
                "kubernetes.io/service-name": service,
                "endpointslice.kubernetes.io/managed-by": "bench",
            },
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints,
    })
}

/// Moves the last endpoint of a slice to another address.
pub(super) async fn change(
    client: &Client,
    size: Size,
    service: &str,
    from: u32,
    count: u32,
    generation: u32,
) -> Result<()> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let patch = json!({"endpoints": endpoints(size, from, count, generation)});
    let name = slice_name(service, 0);
    slices
        .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}
