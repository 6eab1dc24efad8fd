//! The Portolan controller: watches the cluster once, plans every node, streams the plans.
//!
//! Data goes one way: [`watch`] (a cluster) or [`manifests`] (files) → [`from_kube`] → the planner, held by [`engine`] →
//! [`store`] → [`stream`] to the agents. [`publish`] writes the plans as objects. The work of the leader is in
//! [`operator`]: it changes agents and settings in waves, and records a mass loss of endpoints. [`freshness`] is the
//! age of the objects.
#![forbid(unsafe_code)]

pub mod admin;
pub mod agent_registry;
pub mod api_server;
pub mod auth;
mod bucket;
pub mod cli;
pub mod cluster_state;
pub mod config;
pub mod convergence;
pub mod convert;
pub mod engine;
pub mod events;
pub mod freshness;
pub mod from_kube;
pub mod installation;
pub mod leading;
pub mod manifests;
pub mod open_files;
pub mod operator;
pub mod output;
pub mod plugin;
pub mod publish;
pub mod refusal;
mod room;
pub mod store;
pub mod stream;
mod sync;
pub mod telemetry;
pub mod troubled;
pub mod watch;
