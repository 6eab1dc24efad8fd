//! Rollout of settings in waves: which node is given which revision, and when.
//!
//! Everything here is a function of a stored [`State`], of what is [`Asked`] for, of what nodes
//! reported and of the time. Nothing is remembered between two decisions, so whoever leads next
//! decides as the one before would have. One controller decides and stores the state; all of them
//! read it and ask [`State::serves`] what to give to a node.
//!
//! Invariants: a node is reached by at most one change at a time; nobody is reached while the
//! rollout is paused; what was reached stays reached until the change is in force everywhere or is
//! taken back, and then exactly those nodes are back on the revision that they had.
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
