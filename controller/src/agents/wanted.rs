//! What agents should be, by what is stored of the rollout. Pure.

use std::sync::Arc;

use portolan_crds::ProxyConfig;
use portolan_planner::model::Node;
use portolan_rollout::{Policy, Share, State};

use super::assign::{Member, Wanted};
use super::template::Template;
use super::track::Track;
use crate::from_kube;

/// What agents should be, and on which nodes.
#[derive(Debug, Clone)]
pub(super) struct WantedAgents {
    /// On nodes that no change has reached.
    pub(super) current: Template,
    /// On those that one has, if it changes agents.
    pub(super) target: Option<Template>,
    /// How many may be without an agent at once.
    pub(super) most: Share,
    state: State,
    hashes: [String; 2],
}

impl WantedAgents {
    /// By the ProxyConfig. Nothing before a controller that leads has decided.
    pub(super) fn read(config: &ProxyConfig) -> Option<Self> {
        let stored = config.status.as_ref()?.rollout.as_ref()?;
        // Whoever decides says what is wrong with it.
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

    /// Which templates these are.
    pub(super) fn hashes(&self) -> Wanted<'_> {
        Wanted {
            current: &self.hashes[0],
            target: self.target.is_some().then_some(&self.hashes[1]),
        }
    }

    /// The field for which the target cannot be carried out.
    pub(super) fn stands_in_the_way(&self) -> Option<&'static str> {
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

    /// Those of these nodes that agents run on.
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
