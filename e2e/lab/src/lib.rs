//! The lab: prepares the machine, builds the workspace, boots guests, runs the demo and all checks.
//!
//! It has few dependencies, so that it starts within seconds on a machine that has built nothing yet.
#![forbid(unsafe_code)]

pub mod cache;
pub mod cli;
pub mod closing;
pub mod cluster;
mod control_plane;
pub mod demo;
pub mod fuzz;
pub mod guest;
pub mod images;
pub mod installed;
mod kernels;
mod libtest;
mod mirror;
pub mod mutate;
pub mod nested;
pub mod packages;
pub mod process;
pub mod programs;
pub mod progress;
mod real;
pub mod scenarios;
pub mod seen;
pub mod semantics;
pub mod test_builds;
pub mod test_program;
pub mod tiers;
pub mod tools;
pub mod traced;
pub mod verify;

pub use cli::main;
