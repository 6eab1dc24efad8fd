//! The objects that the publisher writes, as values, and its task against an API server with faults. The clock is
//! paused, so minutes cost nothing.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod cluster;
mod faults;
mod figures;
mod plans;
mod replicas;
mod revisions;
mod server;
mod slices;
mod statuses;
mod world;
mod writing;
