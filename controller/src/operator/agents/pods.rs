//! Pods of agents: the DaemonSet of each, and whether it is ready. Pure, except for [`list`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;

use super::daemon_set::AGENTS;
use super::track::Track;

/// Pods in one page of a list.
const PAGE_SIZE: u32 = 500;

/// Pods of agents by node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentPods(BTreeMap<String, Vec<Arc<AgentPod>>>);

/// A pod of an agent that has a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPod {
    node: String,
    name: String,
    track: Option<Track>,
    /// The hash of the template that it was created from.
    agents: String,
    ready: bool,
    /// Whether it is being deleted.
    ends: bool,
}

impl AgentPod {
    /// Reads the relevant fields of a pod; `None` before it is scheduled.
    pub(super) fn read(pod: &Pod) -> Option<Self> {
        let labels = pod.metadata.labels.as_ref();
        let track = labels.and_then(|labels| labels.get(Track::LABEL));
        let annotations = pod.metadata.annotations.as_ref();
        let agents = annotations.and_then(|annotations| annotations.get(AGENTS));
        let ends = pod.metadata.deletion_timestamp.is_some();
        Some(Self {
            node: pod.spec.as_ref()?.node_name.clone()?,
            name: pod.metadata.name.clone().unwrap_or_default(),
            track: track.and_then(|name| Track::read(name)),
            agents: agents.cloned().unwrap_or_default(),
            ready: !ends && super::addresses::is_ready(pod),
            ends,
        })
    }
}

impl FromIterator<Arc<AgentPod>> for AgentPods {
    fn from_iter<I: IntoIterator<Item = Arc<AgentPod>>>(pods: I) -> Self {
        let mut nodes = Self::default();
        nodes.extend(pods);
        nodes
    }
}

impl Extend<Arc<AgentPod>> for AgentPods {
    fn extend<I: IntoIterator<Item = Arc<AgentPod>>>(&mut self, pods: I) {
        for pod in pods {
            self.0.entry(pod.node.clone()).or_default().push(pod);
        }
    }
}

impl AgentPods {
    /// Whether a pod of this template is ready on the node and, if `name` is given, has that name. For some time
    /// after a pod was replaced, the status of the node is still the report of the former pod.
    #[must_use]
    pub fn has_ready(&self, node: &str, agents: &str, name: Option<&str>) -> bool {
        let is_it = |pod: &AgentPod| name.is_none_or(|name| pod.name == name);
        self.on(node)
            .any(|pod| pod.ready && pod.agents == agents && is_it(pod))
    }

    /// Whether a pod of this DaemonSet is ready on the node.
    pub(super) fn serves(&self, node: &str, track: Track) -> bool {
        self.on(node)
            .any(|pod| pod.ready && pod.track == Some(track))
    }

    /// Whether there is any pod on the node, including terminating ones.
    #[must_use]
    pub fn has_any(&self, node: &str) -> bool {
        self.on(node).next().is_some()
    }

    /// The DaemonSets that have a pod on any node. Terminating pods do not count: on a node that is down they may
    /// terminate forever.
    pub(super) fn tracks(&self) -> BTreeSet<Track> {
        let pods = self.0.values().flatten();
        let stay = pods.filter(|pod| !pod.ends);
        stay.filter_map(|pod| pod.track).collect()
    }

    fn on(&self, node: &str) -> impl Iterator<Item = &AgentPod> {
        let pods = self.0.get(node).into_iter().flatten();
        pods.map(AsRef::as_ref)
    }
}

/// Lists all pods of agents in a namespace, with a consistent read.
pub(super) async fn list(api: &Api<Pod>) -> kube::Result<AgentPods> {
    let mut params = ListParams::default().labels(Track::LABEL).limit(PAGE_SIZE);
    let mut found = AgentPods::default();
    loop {
        let page = api.list(&params).await?;
        found.extend(page.items.iter().filter_map(AgentPod::read).map(Arc::new));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(node: &str, track: &str, agents: &str, ready: &str, more: &Value) -> Pod {
        let mut pod = json!({
            "metadata": {
                "name": format!("agent-{node}-{track}"),
                "labels": {Track::LABEL: track},
                "annotations": {AGENTS: agents},
            },
            "spec": {"nodeName": node, "containers": []},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        if let (Some(metadata), Some(more)) = (pod["metadata"].as_object_mut(), more.as_object()) {
            metadata.extend(more.clone());
        }
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_terminating_or_unready_pod_exists_and_does_not_serve() {
        let none = json!({});
        let ends = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let pods = [
            pod("a", "blue", "1", "True", &none),
            pod("b", "green", "2", "True", &ends),
            pod("b", "blue", "1", "False", &none),
            pod("c", "violet", "3", "True", &none),
            Pod::default(),
        ];
        let read = pods.iter().filter_map(AgentPod::read).map(Arc::new);
        let found: AgentPods = read.collect();
        assert!(found.has_ready("a", "1", None) && !found.has_ready("a", "2", None));
        assert!(found.has_ready("a", "1", Some("agent-a-blue")));
        assert!(!found.has_ready("a", "1", Some("agent-a-green")));
        assert!(found.serves("a", Track::Blue) && !found.serves("a", Track::Green));
        assert!(!found.has_ready("b", "2", None) && !found.serves("b", Track::Blue));
        assert!(found.has_ready("c", "3", None));
        assert!(found.has_any("b") && !found.has_any("d"));
        assert_eq!(found.tracks(), [Track::Blue].into());
    }
}
