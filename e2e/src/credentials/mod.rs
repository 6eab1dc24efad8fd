//! Credentials of the controller and its agents: certificates of a CA, and tokens of an API server.

mod authority;
mod tokens;

pub(crate) use authority::{Authority, Identity, NAME};
pub(crate) use tokens::{ACCOUNT, ACCOUNTS, AUDIENCE, NAMESPACE, OTHER, bound, issue, pod};
