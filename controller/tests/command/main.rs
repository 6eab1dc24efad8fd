//! The program's interface: its output and its exit codes.
// Tests, and their helper functions, may fail by panicking.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used)]

mod bad_input;
mod explain;
mod follow;
mod kubectl;
mod plan;
mod program;
mod reported;
mod what_if;
