//! The wanted agents, from the stored state of the rollout. Pure.

use std::sync::Arc;

use portolan_crds::ProxyConfig;
use portolan_planner::model::Node;
use portolan_rollout_policy::{Policy, Share, State};

use super::assign::{Member, Wanted};
use super::template::Template;
use super::track::Track;
use crate::from_kube;

/// The wanted agents, and the nodes on which they run.
#[derive(Debug, Clone)]
pub(super) struct WantedAgents {
    /// The template for nodes that the rollout has not reached.
    pub(super) current: Template,
    /// The template for nodes that it has reached, if it changes agents.
    pub(super) target: Option<Template>,
    /// The maximum number of nodes without a ready agent at a time (`maxUnavailable`).
    pub(super) most: Share,
    state: State,
    hashes: [String; 2],
}

impl WantedAgents {
    /// Reads the ProxyConfig; `None` until a leader has stored a decision.
    pub(super) fn read(config: &ProxyConfig) -> Option<Self> {
        let stored = config.status.as_ref()?.rollout.as_ref()?;
        // The rollout reports an invalid state.
        let state = from_kube::rollout_state(stored).ok()?;
        let template = |number| Template::of(from_kube::agents_of(&state, number)?).ok();
        let current = template(state.current)?;
        let target = state.rolling().and_then(|change| template(change.target));
        let target = target.filter(|target| target.hash() != current.hash());
        let policy = from_kube::asked(config, None).ok()?.policy;
        let hash = target.as_ref().map(Template::hash).unwrap_or_default();
        Some(Self {
            hashes: [current.hash(), hash],
            most: policy.unwrap_or_else(Policy::default).max_unavailable,
            current,
            target,
            state,
        })
    }

    /// The hashes of both templates.
    pub(super) fn hashes(&self) -> Wanted<'_> {
        Wanted {
            current: &self.hashes[0],
            target: self.target.is_some().then_some(&self.hashes[1]),
        }
    }

    /// The immutable field that prevents the change to the target, if any.
    pub(super) fn changed_fixed_field(&self) -> Option<&'static str> {
        self.target.as_ref()?.differs(&self.current)
    }

    /// The template with this hash, if it is one of them.
    pub(super) fn template(&self, hash: &str) -> Option<&Template> {
        match &self.target {
            _ if hash == self.hashes[0] => Some(&self.current),
            Some(target) if hash == self.hashes[1] => Some(target),
            _ => None,
        }
    }

    /// The nodes on which agents run.
    pub(super) fn members<'n>(&self, nodes: impl Iterator<Item = &'n Arc<Node>>) -> Vec<Member> {
        let target = self.target.as_ref();
        let selected = |node: &&Arc<Node>| {
            self.current.selects(node) || target.is_some_and(|target| target.selects(node))
        };
        let member = |node: &Arc<Node>| {
            let zone = node.zone.as_deref().unwrap_or_default();
            let label = node.labels.get(Track::LABEL);
            Member {
                name: node.name.clone(),
                label: label.and_then(|label| Track::read(label)),
                reached: self
                    .state
                    .rolling()
                    .is_some_and(|change| change.reach.includes(&node.name, zone)),
            }
        };
        nodes.filter(selected).map(member).collect()
    }
}
