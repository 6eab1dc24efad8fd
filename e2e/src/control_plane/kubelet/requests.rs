//! The kubelet's reads from objects and writes to the API server.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Status};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::pods::{Action, Seen, SeenNode, Work};

/// The field manager.
pub(super) const NAME: &str = "mini-kubelet";

/// The relevant fields of a pod.
pub(super) fn seen(pod: &Pod) -> Option<Seen> {
    let spec = pod.spec.as_ref()?;
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let ips = status.and_then(|status| status.pod_ips.as_deref());
    let addresses = ips.unwrap_or_default().iter().map(|ip| ip.ip.parse());
    let containers = spec.containers.iter().map(|container| {
        let image = container.image.clone().unwrap_or_default();
        (container.name.clone(), image)
    });
    Some(Seen {
        uid: pod.uid()?,
        namespace: pod.namespace()?,
        name: pod.name_any(),
        containers: containers.collect(),
        node: spec.node_name.clone().filter(|name| !name.is_empty()),
        addresses: addresses.collect::<Result<_, _>>().unwrap_or_default(),
        running: phase == Some("Running"),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        over: matches!(phase, Some("Succeeded" | "Failed")),
    })
}

/// The relevant fields of a node.
pub(super) fn seen_node(node: &Node) -> SeenNode {
    let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable);
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_deref());
    let internal = addresses
        .unwrap_or_default()
        .iter()
        .find(|address| address.type_ == "InternalIP");
    SeenNode {
        schedulable: !unschedulable.unwrap_or_default(),
        address: internal.and_then(|address| address.address.parse().ok()),
    }
}

/// Carries out one request; an object that is no longer there counts as done.
pub(super) async fn carry_out(client: Client, work: Work) -> (Work, Result<(), String>) {
    let api: Api<Pod> = Api::namespaced(client, &work.pod.namespace);
    let result = match &work.action {
        Action::Bind(node) => bind(&api, &work.pod, node).await,
        Action::Run { addresses, host } => {
            let status = status(&work.pod, addresses, *host);
            let params = PatchParams::default();
            api.patch_status(&work.pod.name, &params, &Patch::Strategic(status))
                .await
                .map(drop)
        }
        Action::Delete => delete(&api, &work.pod).await,
    };
    let result = match result {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(error) => {
            let pod = &work.pod;
            Err(format!("pod {}/{}: {error}", pod.namespace, pod.name))
        }
        Ok(()) => Ok(()),
    };
    (work, result)
}

/// Creates or updates a node, and reports it as ready.
pub(super) async fn register(client: Client, node: &Node) -> kube::Result<()> {
    let api: Api<Node> = Api::all(client);
    let name = node.name_any();
    let bare = Node {
        status: None,
        ..node.clone()
    };
    let params = PatchParams::apply(NAME).force();
    api.patch(&name, &params, &Patch::Apply(&bare)).await?;
    // The API server gives every new node the taint that it is not ready yet.
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let untainted = json!({"spec": {"taints": taints}});
    let params = PatchParams::default();
    api.patch(&name, &params, &Patch::Merge(untainted)).await?;
    let addresses = node
        .status
        .as_ref()
        .and_then(|status| status.addresses.as_ref());
    let status = json!({"status": {
        "addresses": addresses,
        "conditions": [condition("Ready")],
        "nodeInfo": node_info(),
    }});
    api.patch_status(&name, &params, &Patch::Merge(status))
        .await?;
    Ok(())
}

async fn bind(api: &Api<Pod>, pod: &Seen, node: &str) -> kube::Result<()> {
    let binding = Binding {
        metadata: ObjectMeta {
            name: Some(pod.name.clone()),
            uid: Some(pod.uid.clone()),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            kind: Some("Node".into()),
            name: Some(node.into()),
            ..ObjectReference::default()
        },
    };
    let params = PostParams::default();
    api.create_subresource::<_, Status>("binding", &pod.name, &params, &binding)
        .await
        .map(drop)
}

async fn delete(api: &Api<Pod>, pod: &Seen) -> kube::Result<()> {
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: Some(pod.uid.clone()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    api.delete(&pod.name, &params).await.map(drop)
}

/// The status of a pod whose containers all run. The uid in it makes the API server refuse it for
/// a later pod of the same name.
fn status(pod: &Seen, addresses: &[IpAddr], host: Option<IpAddr>) -> Value {
    let now = Timestamp::now().to_string();
    let ips: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
    let containers = pod.containers.iter().map(|(name, image)| {
        json!({
            "name": name, "image": image, "imageID": image, "ready": true, "started": true,
            "restartCount": 0, "state": {"running": {"startedAt": now}},
        })
    });
    let conditions = [
        "PodScheduled",
        "Initialized",
        "PodReadyToStartContainers",
        "ContainersReady",
        "Ready",
    ];
    let mut status = json!({
        "phase": "Running",
        "startTime": now,
        "podIP": addresses.first(),
        "podIPs": ips,
        "conditions": conditions.map(condition),
        "containerStatuses": containers.collect::<Vec<_>>(),
    });
    if let Some(host) = host {
        status["hostIP"] = json!(host);
        status["hostIPs"] = json!([{"ip": host}]);
    }
    json!({"metadata": {"uid": pod.uid}, "status": status})
}

fn condition(kind: &str) -> Value {
    let now = Timestamp::now().to_string();
    json!({"type": kind, "status": "True", "reason": "Lab", "lastTransitionTime": now})
}

/// Every field is required.
fn node_info() -> Value {
    let mut info: Value = json!({"kubeletVersion": NAME, "operatingSystem": "linux"});
    for field in [
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeProxyVersion",
        "architecture",
    ] {
        info[field] = json!("");
    }
    info
}
