//! Which nodes have a change of a Service in their kernels.
//!
//! A controller knows this for the agents that are connected to it: each reports the hash of the plan in force, and the
//! store knows the version at which a Service changed last. `page` answers for one controller, `merge` combines the
//! answers of several.

mod merge;
mod page;
mod question;

use serde::{Deserialize, Serialize};

pub use merge::{Excluded, Node, Verdict, merge};
pub use page::answer;
pub use question::{Question, QuestionError};

/// The path of the page.
pub const PATH: &str = "/convergence";

/// The answer of one controller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Convergence {
    /// The URL at which the controller answered, for messages; empty at the controller itself.
    #[serde(skip)]
    pub controller: String,
    /// The Service, as `NAMESPACE/NAME`.
    pub service: String,
    /// Whether the Service is served. False if it has no cluster IP, belongs to another proxy, or is gone.
    pub served: bool,
    /// Kinds for which this controller has not planned the requested version yet.
    pub behind: Vec<String>,
    /// Whether some node still sends new connections to the requested address.
    pub listed: bool,
    /// All nodes that have a plan.
    pub nodes: usize,
    /// Nodes that are connected to this controller and are not known to have the change in force.
    pub waiting: Vec<Waiting>,
    /// Nodes without a stream to this controller.
    pub disconnected: Vec<Disconnected>,
}

/// A node that does not have the change yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Waiting {
    /// Its name.
    pub node: String,
    /// The reason, as text.
    pub reason: String,
}

/// A node without a stream at this controller.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Disconnected {
    /// Its name.
    pub node: String,
    /// Whole seconds since its stream ended, or since the controller started.
    pub seconds: u64,
}
