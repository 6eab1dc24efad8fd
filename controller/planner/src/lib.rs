//! Decides, for every Service, what each node must program, and why.
//!
//! Pure and deterministic: no clock, no randomness, no hash table order, no I/O. The same objects give the same plans
//! in any order of arrival, so that two controllers agree. Events go into [`Planner::apply`], which returns the
//! changed plans.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod compare;
pub mod explain;
pub mod model;

mod backends;
mod frontends;
mod heads;
mod hints;
mod index;
mod limits;
mod node;
mod outside_ranges;
mod planned;
mod planner;
mod proxied;
mod reverse;
mod selection;
mod service;
mod source_ranges;
mod warning;

pub use frontends::is_usable_address;
pub use hints::{HintKind, HintOutcome, HintState, HintUse, HintsIgnored};
pub use model::{AddressOwner, NodeOutsideRanges, Reason};
pub use outside_ranges::OutsideRanges;
pub use planned::PlannedService;
pub use planner::{Planner, Update};
pub use proxied::NotProxied;
pub use warning::Warning;
