//! The agents of all nodes: their DaemonSets, which nodes belong to which of them, and the file in which agents find
//! controllers. The controller that leads keeps all of it.
//!
//! What they should be and what is due is pure: `template`, `track`, `assign`, `wanted`, `daemon_set`, `addresses`,
//! `due`, `kube_proxies`. `watched` reads from the API server, by watches; `operator`, `moving` and `conditions` write to it. Which nodes have been reached by a change is decided by the rollout
//! alone ([`crate::rollout`]), and read here from where it is stored.
//!
//! Invariant: nothing is deleted, and nothing of somebody else's is written but one label of Nodes. What the
//! DaemonSets go with is the ConfigMap of their template (`ownerReferences`).

mod addresses;
mod assign;
mod conditions;
mod daemon_set;
mod due;
mod kube_proxies;
mod moving;
mod operator;
mod pods;
mod template;
mod track;
mod wanted;
mod watched;

use thiserror::Error;

use crate::mirror::Unavailable;
use crate::trust::Named;

pub use operator::Operator;
pub use pods::AgentPods;
pub use template::{KEY, Template, TemplateError};
pub use watched::Watched;

/// What keeps agents, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agents {
    /// The ConfigMap with the DaemonSet as it should be.
    pub template: Named,
    /// The ConfigMap in which agents find controllers.
    pub controllers: Named,
    /// Which pods in its namespace are controllers, as a selector of labels.
    pub pods: String,
}

/// Agents are not kept.
#[derive(Debug, Error)]
pub enum AgentsError {
    /// The chart's ConfigMap is gone.
    #[error(
        "ConfigMap {map} is not there, so agents stay as they are; `helm upgrade` makes it again"
    )]
    NoTemplate {
        /// Where it should be.
        map: Named,
    },
    /// It holds no DaemonSet.
    #[error("ConfigMap {map}: {error}; agents stay as they are")]
    Template {
        /// Where it is.
        map: Named,
        /// What is wrong with it.
        error: TemplateError,
    },
    /// Kubernetes cannot bring pods from what is in force to what is asked for.
    #[error(
        "ConfigMap {map}: {field} differs from what is in force, which no DaemonSet can change; agents stay as they \
         are; write it as it was"
    )]
    Fixed {
        /// Where the template is.
        map: Named,
        /// What differs.
        field: &'static str,
    },
    /// Somebody else made a DaemonSet of the same name.
    #[error(
        "DaemonSet {set} is not ours and is left alone, so there are no agents; delete it or give it another \
         name"
    )]
    Foreign {
        /// The DaemonSet.
        set: Named,
    },
    /// The API server refused.
    #[error("{act}: {error}; may this controller do that, as the chart's Role says?")]
    Refused {
        /// What was tried, with the object.
        act: String,
        /// Its words.
        error: kube::Error,
    },
    /// What it depends on is not known.
    #[error("{0}; may this controller list and watch them, as the chart's Role says?")]
    Unavailable(#[from] Unavailable),
    /// It did not answer.
    #[error("the API server does not answer")]
    Silent,
}

impl AgentsError {
    /// As one word, for a condition.
    fn reason(&self) -> &'static str {
        match self {
            Self::NoTemplate { .. } => "NoTemplate",
            Self::Template { .. } => "TemplateInvalid",
            Self::Fixed { .. } => "TemplateCannotBeReached",
            Self::Foreign { .. } => "ForeignDaemonSet",
            Self::Refused { .. } | Self::Unavailable(_) => "Refused",
            Self::Silent => "Unanswered",
        }
    }
}
