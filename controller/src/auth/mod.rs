//! Authentication and authorization of agents. An agent sends a token bound to its pod. A TokenReview of the API
//! server returns the service account and the node of the pod; the agent may read only the plan of that node. A stream passes `gate`, `tokens`
//! and `verdict`.
//!
//! Decisions are pure, with time as an argument: `claims`, `verdict`, `cache`, `refusals`. I/O is in `reviewer`. A
//! token stays in memory as long as its stream and is never logged.

mod admission;
mod cache;
mod claims;
mod gate;
mod refusals;
mod reviewer;
pub mod tls;
mod token;
mod tokens;
mod verdict;

pub use crate::refusal::{Reason, Refusal};
pub use admission::Admission;
pub use gate::Gate;
pub use refusals::Refusals;
pub use reviewer::{ApiReviewer, Reviewed, Reviewer};
pub use token::Token;
pub use tokens::{Named, TokenOptions, Tokens};
pub use verdict::Identity;

pub(crate) use token::TokenHash;
pub(crate) use verdict::user;
