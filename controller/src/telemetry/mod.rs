//! What operators see of a running controller: metrics, and metrics and traces of single changes.

mod ages;
pub mod changes;
mod lists;
pub(crate) mod load;
pub mod metrics;
