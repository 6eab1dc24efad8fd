//! Authentication and authorization of agents. An agent sends a token bound to its pod. A TokenReview of the API
//! server returns the service account and the node of the pod; the agent may read only the plan of that node. A stream
//! passes `gate`, `tokens` and `verdict`.
//!
//! Before a review, `signature` verifies the token with the keys that `issuer` reads, and `lanes` limits reviews by
//! client. `admission` reviews the token of an open stream again, and the newer ones that the agent sends.
//!
//! Decisions are pure, with time as an argument: `claims`, `signature`, `lanes`, `verdict`, `cache`, `refusals`. I/O is
//! in `reviewer` and `issuer`. A token stays in memory as long as its stream and is never logged. [`fuzz`] is for tests.

mod admission;
mod cache;
mod claims;
pub mod fuzz;
mod gate;
mod issuer;
mod lanes;
mod refusals;
mod reviewer;
mod signature;
pub mod tls;
mod token;
mod tokens;
mod verdict;

pub use crate::refusal::{Reason, Refusal};
pub use admission::Admission;
pub use gate::Gate;
pub use issuer::Issuer;
pub use lanes::Source;
pub use refusals::Refusals;
pub use reviewer::{ApiReviewer, Reviewed, Reviewer};
pub use token::Token;
pub use tokens::{Named, TokenOptions, Tokens};
pub use verdict::Identity;

pub(crate) use token::TokenHash;
pub(crate) use verdict::user;
