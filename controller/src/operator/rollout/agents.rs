//! Agents that a rollout replaces: the wanted template, and the nodes on which its pods run.

use std::sync::Arc;

use portolan_planner::model;
use portolan_rollout_policy::{Agent, State};
use serde_json::Value;

use crate::from_kube;
use crate::operator::agents::{AgentPods, KEY, Template, Watched};
use crate::operator::mirror::Unavailable;

/// The template of the agents' DaemonSets, and their pods.
pub(super) struct AgentsSource(pub(super) Arc<Watched>);

impl AgentsSource {
    /// The template; `None` if there is no valid one.
    pub(super) fn read(&self) -> Result<Option<Value>, Unavailable> {
        let map = self.0.template()?;
        let data = map.as_ref().and_then(|map| map.data.as_ref());
        let text = data.and_then(|data| data.get(KEY));
        let template = text.and_then(|text| Template::read(text).ok());
        Ok(template.map(|template| template.value()))
    }

    /// The agents that the current rollout replaces; `None` if it does not change agents.
    pub(super) fn replaced(&self, state: &State) -> Result<Option<Replaced>, Unavailable> {
        let template = |number| Template::of(from_kube::agents_of(state, number)?).ok();
        let Some(target) = template(state.target()) else {
            return Ok(None);
        };
        let hash = target.hash();
        if template(state.current).is_some_and(|current| current.hash() == hash) {
            return Ok(None);
        }
        let pods = self.0.agent_pods()?;
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
    /// The effect of the rollout on the agent of a node, if the node has one: taints keep agents away from some
    /// nodes. `reporter` is the pod that reported the status of the node.
    pub(super) fn of(&self, node: &model::Node, state: &State, reporter: Option<&str>) -> Agent {
        let zone = node.zone.as_deref().unwrap_or_default();
        let reach = state.rolling().map(|change| &change.reach);
        // An agent that is being replaced has no pod for a moment.
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
