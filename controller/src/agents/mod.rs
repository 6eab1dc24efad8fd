//! The agents of all nodes: their DaemonSet, and the file in which they find controllers. The controller
//! that leads keeps both.
//!
//! What they should be and what is due is pure: `template`, `daemon_set`, `addresses`, `due`. `operator`
//! talks to the API server.
//!
//! Invariant: nothing is deleted, and nothing of somebody else's is written. What the DaemonSet goes with is
//! the ConfigMap of its template (`ownerReferences`).

mod addresses;
mod daemon_set;
mod due;
mod operator;
mod template;

use thiserror::Error;

use crate::trust::Named;

pub use addresses::addresses;
pub use daemon_set::{Owner, stable};
pub use due::{Made, Reason, due};
pub use operator::Operator;
pub use template::{Template, TemplateError};

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
    /// It did not answer.
    #[error("the API server does not answer")]
    Silent,
}
