//! Which nodes have a change of a Service in their kernels.
//!
//! A controller knows it of the agents whose streams it holds: each tells the hash of what is in force,
//! and the store knows at which version a Service changed last. `page` answers for one controller,
//! `merge` puts the answers of several together.

mod merge;
mod page;
mod question;

use serde::{Deserialize, Serialize};

pub use merge::{Excluded, Node, Verdict, merge};
pub use page::answer;
pub use question::{Question, QuestionError};

/// The path of the page.
pub const PATH: &str = "/convergence";

/// What one controller knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Convergence {
    /// The Service, NAMESPACE/NAME.
    pub service: String,
    /// Whether it is served. False while it has no cluster IP, belongs to another proxy, or is gone.
    pub served: bool,
    /// Kinds of which this controller has planned less than was asked for.
    pub behind: Vec<String>,
    /// Whether the address that was asked for is still among the backends of some node.
    pub listed: bool,
    /// All nodes that have a plan.
    pub nodes: usize,
    /// Nodes whose streams are open here and on which the change is not known to be in force.
    pub waiting: Vec<Waiting>,
    /// Nodes that have no stream here.
    pub away: Vec<Away>,
}

/// A node that does not have it yet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Waiting {
    /// Its name.
    pub node: String,
    /// Why, in words.
    pub reason: String,
}

/// A node without a stream at this controller.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Away {
    /// Its name.
    pub node: String,
    /// For how long in whole seconds: since its stream ended, or since the controller started.
    pub seconds: u64,
}
