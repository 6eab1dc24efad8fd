//! Tests of rollouts: stories and laws.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod laws;
mod replacing;
mod stories;
mod world;
