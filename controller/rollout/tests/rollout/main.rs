//! What rollouts do, in stories and in laws.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod laws;
mod replacing;
mod stories;
mod world;
