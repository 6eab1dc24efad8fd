//! The program as people meet it: what it prints and how it ends.
// Panics are a fine way for a test to fail, in its own functions too.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used)]

mod bad_input;
mod explain;
mod follow;
mod kubectl;
mod plan;
mod program;
mod reported;
mod what_if;
