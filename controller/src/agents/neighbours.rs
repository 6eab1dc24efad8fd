//! Pods of kube-proxy on nodes of agents: two service proxies on one node disturb each other.
//!
//! Touches: the API server (pods of `kube-system`).

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::time::Instant;

/// Where installers put kube-proxy.
const NAMESPACE: &str = "kube-system";
/// How they label it: kubeadm's DaemonSet and those made like it; AKS, and the static pods of GKE.
const LABELS: [&str; 2] = ["k8s-app=kube-proxy", "component=kube-proxy"];
/// How often it is looked for.
const PERIOD: Duration = Duration::from_secs(30);
/// Pods that are asked for at once.
const PAGE: u32 = 500;

/// Nodes with a pod of kube-proxy; `None` if the API server did not say.
pub(super) type KubeProxies = Option<BTreeSet<String>>;

/// Looks for kube-proxy from time to time.
#[derive(Debug)]
pub(super) struct Neighbours {
    pods: Api<Pod>,
    looked: Option<Instant>,
    found: KubeProxies,
}

impl Neighbours {
    pub(super) fn new(client: Client) -> Self {
        Self {
            pods: Api::namespaced(client, NAMESPACE),
            looked: None,
            found: None,
        }
    }

    /// What was found, at most half a minute ago.
    pub(super) async fn kube_proxies(&mut self) -> &KubeProxies {
        let now = Instant::now();
        if self.looked.is_none_or(|looked| now >= looked + PERIOD) {
            self.looked = Some(now);
            // Without the right to do so nothing can be said, and that is what the condition says.
            self.found = self.look().await.ok();
        }
        &self.found
    }

    async fn look(&self) -> kube::Result<BTreeSet<String>> {
        let mut nodes = BTreeSet::new();
        for labels in LABELS {
            let mut params = ListParams::default().labels(labels).limit(PAGE);
            loop {
                let page = self.pods.list(&params).await?;
                nodes.extend(page.items.iter().filter_map(node_of));
                match page.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => params = params.continue_token(&token),
                    None => break,
                }
            }
        }
        Ok(nodes)
    }
}

/// Where a pod runs, unless it has ended or is about to.
fn node_of(pod: &Pod) -> Option<String> {
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
            let said = pod.to_string();
            assert_eq!(node(pod).as_deref(), wanted, "{said}");
        }
    }
}
