//! Shared code of scenarios: the lab with its programs ([`Lab`]), the runner of a scenario's parts, and steady
//! traffic ([`loads`]).
//!
//! Waiting is [`Waits::eventually`](crate::waits::Waits::eventually), with the deadlines named beside it.

mod ask;
mod lab;
pub(crate) mod loads;
mod parts;
pub(crate) mod servers;

pub(crate) use ask::clients_of;
pub(crate) use lab::{Lab, manifest_name, proxy_config, wrote_nothing};
pub(crate) use parts::{Environment, run_parts};
