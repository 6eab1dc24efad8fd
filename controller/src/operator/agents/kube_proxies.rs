//! Pods of kube-proxy on nodes of agents: two service proxies on one node disturb each other. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;

/// The namespace in which installers create kube-proxy.
pub(super) const NAMESPACE: &str = "kube-system";
/// Labels of kube-proxy: of kubeadm's DaemonSet and those made like it; of AKS, and of the static pods of GKE.
pub(super) const LABELS: [&str; 2] = ["k8s-app=kube-proxy", "component=kube-proxy"];

/// Nodes with a pod of kube-proxy; `None` if these pods cannot be listed.
pub(super) type KubeProxies = Option<BTreeSet<String>>;

/// The node of a pod, unless the pod has ended or is being deleted.
pub(super) fn node_of(pod: &Pod) -> Option<String> {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    pod.spec.as_ref()?.node_name.clone()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(pod: Value) -> Option<String> {
        node_of(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_pod_counts_where_it_runs_until_it_ends() {
        let spec = json!({"containers": [], "nodeName": "a"});
        let running = json!({"phase": "Running"});
        let ends = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        for (pod, wanted) in [
            (json!({"spec": spec, "status": running}), Some("a")),
            (json!({"spec": spec}), Some("a")),
            (json!({"spec": {"containers": []}, "status": running}), None),
            (json!({"spec": spec, "status": {"phase": "Failed"}}), None),
            (
                json!({"metadata": ends, "spec": spec, "status": running}),
                None,
            ),
        ] {
            let shown = pod.to_string();
            assert_eq!(node(pod).as_deref(), wanted, "{shown}");
        }
    }
}
