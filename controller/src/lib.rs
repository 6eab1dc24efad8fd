//! The Portolan controller: watches the cluster once, plans every node, streams the plans.
#![forbid(unsafe_code)]

pub mod serve;
pub mod store;
