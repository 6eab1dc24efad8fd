//! The planner from outside: the rules of Kubernetes as tables, and laws over random histories.

mod build;
mod cases;
mod laws;
