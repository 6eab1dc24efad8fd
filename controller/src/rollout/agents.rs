//! Agents that a change replaces: what is asked for, and on which nodes it runs.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{Api, Client};
use portolan_planner::model;
use portolan_rollout::{Agent, State};
use serde_json::Value;

use crate::agents::{AgentPods, KEY, Template, list};
use crate::from_kube;
use crate::trust::Named;

/// Where the template of the agents' DaemonSet is, and their pods.
pub(super) struct AgentsSource {
    map: Named,
    templates: Api<ConfigMap>,
    pods: Api<Pod>,
}

impl AgentsSource {
    pub(super) fn new(client: Client, map: &Named) -> Self {
        Self {
            templates: Api::namespaced(client.clone(), &map.namespace),
            pods: Api::namespaced(client, &map.namespace),
            map: map.clone(),
        }
    }

    /// The template; nothing where there is none that can be used.
    pub(super) async fn read(&self) -> kube::Result<Option<Value>> {
        let map = self.templates.get_opt(&self.map.name).await?;
        let data = map.and_then(|map| map.data).unwrap_or_default();
        let template = data.get(KEY).and_then(|text| Template::read(text).ok());
        Ok(template.map(|template| template.value()))
    }

    /// What the change on its way does to agents; nothing if it leaves them as they are.
    pub(super) async fn replaced(&self, state: &State) -> kube::Result<Option<Replaced>> {
        let template = |number| Template::of(from_kube::agents_of(state, number)?).ok();
        let Some(target) = template(state.target()) else {
            return Ok(None);
        };
        let hash = target.hash();
        if template(state.current).is_some_and(|current| current.hash() == hash) {
            return Ok(None);
        }
        let pods = list(&self.pods).await?;
        Ok(Some(Replaced { target, hash, pods }))
    }
}

/// Agents that are replaced.
pub(super) struct Replaced {
    target: Template,
    hash: String,
    pods: AgentPods,
}

impl Replaced {
    /// What it does to the agent of a node, if there is one: taints keep them from some. `reporter` is the pod by
    /// which the node's status was reported.
    pub(super) fn of(&self, node: &model::Node, state: &State, reporter: Option<&str>) -> Agent {
        let zone = node.zone.as_deref().unwrap_or_default();
        let reach = state.rolling().map(|change| &change.reach);
        // One that is being replaced has no pod for a moment.
        let reached = reach.is_some_and(|reach| reach.includes(&node.name, zone));
        if !self.target.selects(node) || !(reached || self.pods.has_any(&node.name)) {
            Agent::Stays
        } else if self.pods.has_ready(&node.name, &self.hash, reporter) {
            Agent::New
        } else {
            Agent::Old
        }
    }
}
