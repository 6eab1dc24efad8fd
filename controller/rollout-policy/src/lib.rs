//! Rollout of settings in waves: which node gets which revision, and when.
//!
//! Everything here is a function of the stored [`State`], the desired configuration [`Asked`], the reports of nodes
//! and the time. No other state is kept between two decisions, so a new leader decides like the former one. The
//! leader decides and stores the state; all controllers read it and call [`State::serves`] for the revision of a
//! node.
//!
//! Invariants: a node has at most one change at a time; no node receives a change while the rollout is paused; a node
//! keeps a change until it is in force everywhere or is rolled back, and then exactly the nodes that had it are back
//! on their former revision (I-14).
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod adopt;
mod advance;
mod gates;
mod node;
mod policy;
mod reach;
mod state;

pub use gates::Tally;
pub use node::{Agent, Health, Node, Report};
pub use policy::{Asked, By, Gates, OnFailure, Policy, Share};
pub use reach::{Partly, Reach, Scope};
pub use state::{Phase, Progress, Revision, Stage, State, Wave};

/// Seconds since 1970.
pub type Moment = u64;
