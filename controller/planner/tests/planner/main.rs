//! Tests of the public interface of the planner: the rules of Kubernetes as tables, and laws over random histories.
// A panic is how a test fails, also in helper functions.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used)]

mod build;
mod cases;
mod clients;
mod compare;
mod compare_cost;
mod cost;
mod explain;
mod guard;
mod guard_laws;
mod guard_stored;
mod guard_world;
mod histories;
mod laws;
mod limits;
mod outside_ranges;
mod places;
mod reference;
mod touched;
