//! The work of the leader, on kube-runtime: agents and settings change in waves, and a mass loss of endpoints is
//! recorded.
//!
//! A follower has these tasks too. Those of [`agents`] and [`rollout`] wait until it leads ([`crate::leading`]). The one of
//! [`guard`] also stores a new loss on a follower, because only the controllers that saw the endpoints know of it.

pub mod agents;
pub mod guard;
pub mod lease;
pub mod mirror;
pub mod rollout;
