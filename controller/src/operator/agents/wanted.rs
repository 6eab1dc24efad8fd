//! The wanted agents, from the stored state of the rollout and the recorded templates. Pure.

use std::sync::Arc;

use portolan_crds::ProxyConfig;
use portolan_planner::model::Node;
use portolan_rollout_policy::{Policy, Share, State};

use super::assign::{Member, Wanted};
use super::template::Template;
use super::templates::Templates;
use super::track::Track;
use crate::from_kube::{self, Sha256};

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

/// The hash of a template that the controllers' namespace has not recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unrecorded(pub(super) Sha256);

impl WantedAgents {
    /// Reads the ProxyConfig; `None` until a leader has stored a decision.
    ///
    /// # Errors
    /// It refers to a template that is not recorded.
    pub(super) fn read(
        config: &ProxyConfig,
        templates: &Templates,
    ) -> Result<Option<Self>, Unrecorded> {
        let status = config.status.as_ref();
        let stored = status.and_then(|status| status.rollout.as_ref());
        let state = stored.and_then(|stored| from_kube::rollout_state(stored).ok());
        // The rollout reports an invalid state and an invalid spec.
        let (Some(state), Ok(asked)) = (state, from_kube::asked(config, None)) else {
            return Ok(None);
        };
        let template = |number| match from_kube::agents_of(&state, number) {
            Some(record) => match templates.get(&record) {
                Some(template) => Ok(Some(template)),
                None => Err(Unrecorded(record.sha256)),
            },
            None => Ok(None),
        };
        let Some(current) = template(state.current)? else {
            return Ok(None);
        };
        let target = match state.rolling() {
            Some(change) => template(change.target)?,
            None => None,
        };
        let target = target.filter(|target| target.hash() != current.hash());
        let hash = target.as_ref().map(Template::hash).unwrap_or_default();
        Ok(Some(Self {
            hashes: [current.hash(), hash],
            most: asked.policy.unwrap_or_else(Policy::default).max_unavailable,
            current,
            target,
            state,
        }))
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
