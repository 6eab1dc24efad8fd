//! Agents that a change replaces: what is asked for, and on which nodes it runs.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{Api, Client};
use portolan_planner::model;
use portolan_rollout::{Report, State};
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
        if template(state.current).as_ref() == Some(&target) {
            return Ok(None);
        }
        let pods = list(&self.pods).await?;
        Ok(Some(Replaced { target, pods }))
    }
}

/// Agents that are replaced.
pub(super) struct Replaced {
    target: Template,
    pods: AgentPods,
}

impl Replaced {
    /// Whether agents run on a node at all.
    pub(super) fn concerns(&self, node: &model::Node) -> bool {
        self.target.selects(node)
    }

    /// What a node reported: what it says of new settings counts once its agent is the new one.
    pub(super) fn report(&self, report: Report, node: &str, state: &State) -> Report {
        let is_new = self.pods.has_ready(node, &self.target.hash());
        if is_new || report.applied != Some(state.target()) {
            return report;
        }
        Report {
            applied: Some(state.current),
            ..report
        }
    }
}
