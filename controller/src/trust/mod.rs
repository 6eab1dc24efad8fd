//! Who may read which plan: an agent shows a token that is bound to its pod, the API server says whose it
//! is and on which node the pod runs, and that node's plan is the only one it is given.
//!
//! What is decided is pure, with time as an argument: `claims`, `verdict`, `cache`,
//! `told`. I/O is in `reviewer`. A token is in memory as long as its stream, and in no log.

mod admission;
mod cache;
mod claims;
mod gate;
mod refusal;
mod reviewer;
mod token;
mod tokens;
mod told;
mod verdict;

pub use admission::Admission;
pub use gate::Gate;
pub use refusal::{Reason, Refusal};
pub use reviewer::{ApiReviewer, Reviewed, Reviewer};
pub use token::Token;
pub use tokens::{Named, TokenOptions, Tokens};
pub use told::Refusals;
pub use verdict::Identity;

pub(crate) use verdict::user;
