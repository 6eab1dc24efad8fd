//! The agents of all nodes: their DaemonSets, the assignment of nodes to DaemonSets, and the file with the addresses
//! of controllers. Only the leader manages them.
//!
//! The decisions are pure: `template`, `track`, `assign`, `wanted`, `daemon_set`, `addresses`, `due`, `kube_proxies`.
//! `watched` reads from the API server, by watches; `operator`, `moving` and `conditions` write to it. The rollout
//! alone decides which nodes a change has reached ([`crate::rollout`]); this module reads the stored decision.
//!
//! Invariant: nothing is deleted, and of objects that others own only one label of Nodes is written. The DaemonSets
//! are owned by the ConfigMap of their template (`ownerReferences`), and are garbage collected with it.

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

/// The objects from which agents are managed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agents {
    /// The ConfigMap with the template of the DaemonSet.
    pub template: Named,
    /// The ConfigMap with the addresses of controllers.
    pub controllers: Named,
    /// The label selector of the controllers' pods in its namespace.
    pub pods: String,
}

/// Why agents cannot be managed.
#[derive(Debug, Error)]
pub enum AgentsError {
    /// The ConfigMap of the chart does not exist.
    #[error(
        "ConfigMap {map} is not there, so agents stay as they are; `helm upgrade` makes it again"
    )]
    NoTemplate {
        /// The ConfigMap.
        map: Named,
    },
    /// The ConfigMap contains no valid DaemonSet.
    #[error("ConfigMap {map}: {error}; agents stay as they are")]
    Template {
        /// The ConfigMap.
        map: Named,
        /// The problem of the template.
        error: TemplateError,
    },
    /// A field differs that Kubernetes cannot change in a DaemonSet.
    #[error(
        "ConfigMap {map}: {field} differs from what is in force, which no DaemonSet can change; agents stay as they \
         are; write it as it was"
    )]
    Fixed {
        /// The ConfigMap of the template.
        map: Named,
        /// The field that differs.
        field: &'static str,
    },
    /// A DaemonSet of the same name exists that this controller did not create.
    #[error(
        "DaemonSet {set} is not ours and is left alone, so there are no agents; delete it or give it another \
         name"
    )]
    Foreign {
        /// The DaemonSet.
        set: Named,
    },
    /// The API server rejected a request.
    #[error("{act}: {error}; may this controller do that, as the chart's Role says?")]
    Refused {
        /// The action, with the object.
        act: String,
        /// The error of the client.
        error: kube::Error,
    },
    /// Objects that agents depend on cannot be watched.
    #[error("{0}; may this controller list and watch them, as the chart's Role says?")]
    Unavailable(#[from] Unavailable),
    /// The API server did not answer in time.
    #[error("the API server does not answer")]
    Silent,
}

impl AgentsError {
    /// The reason in a condition.
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
