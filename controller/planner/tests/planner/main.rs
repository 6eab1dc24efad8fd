//! The planner from outside: the rules of Kubernetes as tables, and laws over random histories.
// Panics are a fine way for a test to fail, in its own functions too.
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
mod places;
mod reference;
mod strays;
mod touched;
