//! What only the leader does, on kube-runtime: agents and settings change in waves, and a change that loses many
//! endpoints at once is held.
//!
//! A follower runs these tasks too: each waits until its controller leads ([`leading`]).

pub mod agents;
pub mod guard;
pub mod leading;
pub mod lease;
pub mod mirror;
pub mod rollout;
