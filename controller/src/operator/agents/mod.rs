//! The agents of all nodes: their DaemonSets, the assignment of nodes to DaemonSets, and the file with the addresses
//! of controllers. Only the leader manages them.
//!
//! The decisions are pure: `template`, `templates`, `track`, `assign`, `wanted`, `daemon_set`, `addresses`, `due`,
//! `kube_proxies`. `watched` reads from the API server, by watches; `operator`, `daemon_sets`, `history`, `moving` and
//! `conditions` write to it.
//! The rollout alone decides which nodes a change has reached ([`crate::operator::rollout`]); this module reads the
//! stored decision.
//!
//! A pod template comes only from a ConfigMap of the controllers' namespace. The status of the ProxyConfig, which is
//! not in that namespace, refers to it by its SHA-256 (`templates`).
//!
//! Invariant: nothing is deleted, and of objects that others own only one label of Nodes is written. The DaemonSets
//! are owned by the ConfigMap of their template (`ownerReferences`), and are garbage collected with it.

mod addresses;
mod assign;
mod conditions;
mod daemon_set;
mod daemon_sets;
mod due;
mod history;
mod kube_proxies;
mod moving;
mod operator;
mod pods;
mod template;
mod templates;
mod track;
mod wanted;
mod watched;

use thiserror::Error;

use crate::auth::Named;
use crate::from_kube::Sha256;
use crate::operator::mirror::Unavailable;

pub use history::TemplateHistory;
pub use operator::Operator;
pub use pods::AgentPods;
pub use template::{KEY, Template, TemplateError};
pub use templates::{Recorded, Templates};
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
        "ConfigMap {map} does not exist, so agents stay as they are; `helm upgrade` creates it again"
    )]
    NoTemplate {
        /// The ConfigMap.
        map: Named,
    },
    /// The ConfigMap contains no valid DaemonSet.
    #[error("ConfigMap {map}: {error}; agents stay as they are; `helm upgrade` writes it again")]
    Template {
        /// The ConfigMap.
        map: Named,
        /// The problem of the template.
        error: TemplateError,
    },
    /// The state of the rollout refers to a template that the namespace has not recorded.
    #[error(
        "ConfigMap {map} has no template with the SHA-256 {sha256}, to which status.rollout of ProxyConfig default \
         refers, so agents stay as they are; find out which client changed one of the two. Restore it, or remove \
         status.rollout with `kubectl edit proxyconfig default --subresource=status`: all nodes then get the template \
         of the chart at once"
    )]
    Unrecorded {
        /// The ConfigMap of recorded templates.
        map: Named,
        /// The hash.
        sha256: Sha256,
    },
    /// A field differs that Kubernetes cannot change in a DaemonSet.
    #[error(
        "ConfigMap {map}: {field} differs from the value in force, and cannot be changed in an existing DaemonSet; \
         agents stay as they are; restore the former value with `helm upgrade`"
    )]
    Fixed {
        /// The ConfigMap of the template.
        map: Named,
        /// The field that differs.
        field: &'static str,
    },
    /// A DaemonSet of the same name exists that this controller did not create.
    #[error(
        "DaemonSet {set} exists and was not created by Portolan, which does not change it, so nodes get no agents \
         from it; if it is not needed, delete it: `kubectl -n {} delete daemonset {}`",
        .set.namespace,
        .set.name
    )]
    Foreign {
        /// The DaemonSet.
        set: Named,
    },
    /// The API server rejected a request.
    #[error("{act}: {error}; check that this controller has the chart's Role")]
    Refused {
        /// The action, with the object.
        act: String,
        /// The error of the client.
        error: kube::Error,
    },
    /// Objects that agents depend on cannot be watched.
    #[error("{0}; check that this controller has the chart's Role, which allows list and watch")]
    Unavailable(#[from] Unavailable),
    /// The API server did not answer in time.
    #[error(
        "no answer from the API server within {} s; check `kubectl get --raw /readyz` and the network of the \
         controller's node",
        operator::PASS_TIMEOUT.as_secs()
    )]
    Silent,
}

impl AgentsError {
    /// An error of the API server. `act` is the action, in the infinitive.
    fn refused(act: &str, object: &impl std::fmt::Display, error: kube::Error) -> Self {
        Self::Refused {
            act: format!("{act} {object}"),
            error,
        }
    }

    /// Whether another client has changed the object, so that the write is to be decided again.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { error: kube::Error::Api(status), .. } if status.code == 409)
    }

    /// The reason in a condition.
    fn reason(&self) -> &'static str {
        match self {
            Self::NoTemplate { .. } => "NoTemplate",
            Self::Template { .. } => "TemplateInvalid",
            Self::Unrecorded { .. } => "TemplateNotRecorded",
            Self::Fixed { .. } => "ImmutableField",
            Self::Foreign { .. } => "ForeignDaemonSet",
            Self::Refused { .. } | Self::Unavailable(_) => "Refused",
            Self::Silent => "Unanswered",
        }
    }
}
