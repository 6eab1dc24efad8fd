//! The Portolan controller: watches the cluster once, plans every node, streams the plans.
//!
//! Data goes one way: `watch` (a cluster) or `manifests` (files) → `from_kube` → the planner, held by `engine` →
//! `store` → `serve`. `publish` writes the plans as objects, `rollout` and `agents` bring changes to nodes in waves.
#![forbid(unsafe_code)]

pub mod admin;
pub mod agents;
pub mod api_server;
pub mod board;
mod bucket;
pub mod cause;
pub mod changes;
pub mod cli;
pub mod config;
pub mod convergence;
pub mod convert;
pub mod engine;
pub mod events;
pub mod from_kube;
pub mod guard;
pub mod installation;
pub mod known;
pub mod leading;
pub mod lease;
pub mod manifests;
pub mod metrics;
pub mod mirror;
pub mod output;
pub mod plugin;
pub mod publish;
pub mod refusal;
pub mod rollout;
pub mod serve;
pub mod store;
pub mod tls;
pub mod trust;
pub mod watch;
