//! What is written into the store: objects as values, and the task that writes them against an API
//! server with faults. The clock is paused: minutes cost nothing.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod cluster;
mod faults;
mod figures;
mod plans;
mod revisions;
mod server;
mod slices;
mod statuses;
mod world;
mod writing;
