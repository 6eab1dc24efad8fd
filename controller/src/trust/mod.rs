//! Authentication and authorization of agents. An agent sends a token bound to its pod. A TokenReview of the API
//! server returns the service account and the node of the pod; the agent may read only the plan of that node.
//!
//! Decisions are pure, with time as an argument: `claims`, `verdict`, `cache`, `told`. I/O is in `reviewer`. A
//! token stays in memory as long as its stream and is never logged.

mod admission;
mod cache;
mod claims;
mod gate;
mod reviewer;
mod token;
mod tokens;
mod told;
mod verdict;

pub use crate::refusal::{Reason, Refusal};
pub use admission::Admission;
pub use gate::Gate;
pub use reviewer::{ApiReviewer, Reviewed, Reviewer};
pub use token::Token;
pub use tokens::{Named, TokenOptions, Tokens};
pub use told::Refusals;
pub use verdict::Identity;

pub(crate) use verdict::user;
