//! Agents that a rollout replaces: the wanted template, and the nodes on which its pods run.

use std::sync::Arc;

use kube::Client;
use portolan_crds::RolloutStatus;
use portolan_planner::model;
use portolan_rollout_policy::{Agent, State};

use crate::from_kube::{self, AgentsRecord};
use crate::operator::agents::{
    AgentPods, Agents, AgentsError, KEY, Recorded, Template, TemplateHistory, Watched,
};
use crate::operator::mirror::Unavailable;

/// The template of the agents' DaemonSets, its history, and their pods.
pub(super) struct AgentsSource {
    watched: Arc<Watched>,
    history: TemplateHistory,
}

impl AgentsSource {
    pub(super) fn new(client: Client, agents: &Agents, watched: Arc<Watched>) -> Self {
        let history = TemplateHistory::new(client, agents, watched.clone());
        Self { watched, history }
    }

    /// The template of the chart; `None` if there is no valid one.
    pub(super) fn read(&self) -> Result<Option<Recorded>, Unavailable> {
        let map = self.watched.template()?;
        let data = map.as_ref().and_then(|map| map.data.as_ref());
        let text = data.and_then(|data| data.get(KEY));
        let template = text.and_then(|text| Template::read(text).ok());
        Ok(template.as_ref().map(Recorded::of))
    }

    /// Records a template beside those of the stored revisions.
    pub(super) async fn record(
        &self,
        new: &Recorded,
        stored: &RolloutStatus,
    ) -> Result<(), AgentsError> {
        self.history.record(new, stored).await
    }

    /// The agents that the current rollout replaces; `None` if it does not change agents.
    pub(super) fn replaced(&self, state: &State) -> Result<Option<Replaced>, Unavailable> {
        let agents = |number| from_kube::agents_of(state, number);
        let Some(target) = agents(state.target()) else {
            return Ok(None);
        };
        let current = agents(state.current);
        let is_target = |current: &AgentsRecord| current.sha256 == target.sha256;
        if current.as_ref().is_some_and(is_target) {
            return Ok(None);
        }
        let templates = self.watched.templates()?;
        let target = templates.get(&target).map(Target::of);
        let current = current.and_then(|current| templates.get(&current));
        let pods_stay = |target: &Target| {
            let current = current.as_ref();
            current.is_some_and(|current| current.hash() == target.hash)
        };
        if target.as_ref().is_some_and(pods_stay) {
            return Ok(None);
        }
        let pods = self.watched.agent_pods()?;
        Ok(Some(Replaced { target, pods }))
    }
}

/// A template, with the hash of its pods.
struct Target {
    template: Template,
    hash: String,
}

impl Target {
    fn of(template: Template) -> Self {
        let hash = template.hash();
        Self { template, hash }
    }
}

/// Agents that are replaced.
pub(super) struct Replaced {
    /// The new template; `None` if it is not recorded, so that no agent can have it. The rollout then fails, as for an
    /// image that does not start.
    target: Option<Target>,
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
        let target = self.target.as_ref();
        let has_agent = target.is_none_or(|target| target.template.selects(node))
            && (reached || self.pods.has_any(&node.name));
        let is_new = |target: &Target| self.pods.has_ready(&node.name, &target.hash, reporter);
        if !has_agent {
            Agent::Stays
        } else if target.is_some_and(is_new) {
            Agent::New
        } else {
            Agent::Old
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use portolan_rollout_policy::{Progress, Reach, Stage, Wave};

    use super::*;

    fn node(name: &str) -> model::Node {
        model::Node {
            name: name.into(),
            zone: None,
            labels: BTreeMap::new(),
            addresses: Vec::new(),
            pod_cidrs: Vec::new(),
            ready: true,
            deleted: false,
            scaled_away: false,
            ignored: Vec::new(),
        }
    }

    #[test]
    fn no_node_has_an_agent_of_a_template_that_is_not_recorded() {
        let reach = Reach {
            nodes: BTreeSet::from(["a".into()]),
            ..Reach::default()
        };
        let progress = Progress {
            target: 2,
            reach,
            wave: Wave::Canary,
            soaking: None,
            touched_at: 0,
            excused: BTreeSet::new(),
            halted: false,
            waiting: String::new(),
        };
        let state = State {
            history: Vec::new(),
            current: 1,
            stage: Stage::Rolling(progress),
            reason: String::new(),
        };
        let unrecorded = Replaced {
            target: None,
            pods: AgentPods::default(),
        };
        assert_eq!(unrecorded.of(&node("a"), &state, None), Agent::Old);
        assert_eq!(unrecorded.of(&node("b"), &state, None), Agent::Stays);
    }
}
