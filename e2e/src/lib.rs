//! Scenarios that run in place, in the guest or on a host whose kernel has IPVS.
//!
//! From the ground up: [`program`] starts known programs, [`namespace`] enters network namespaces, [`topology`]
//! builds nodes, pods and external clients from them, [`traffic`] sends and answers in them, [`witness`] reads the
//! kernel's own view, [`cluster`] runs the controller and the agents, and [`jaeger`] shows where the time of a change
//! went.
//! [`scenario`] (on a harness that all scenarios share) and [`demo`] combine all of these. Expectations come from
//! checked-in tables ([`expectation`]), never from the programs under test. [`stage`] has the arguments of all of
//! them, and [`checks`] counts what they check.
//!
//! Everything a scenario makes is a guard: processes end and namespaces go when it is dropped.
#![forbid(unsafe_code)]

mod agent_stream;
pub mod bench;
pub mod chance;
pub mod checks;
pub mod cli;
pub mod cluster;
pub mod console;
pub mod control_plane;
mod credentials;
pub mod dataplane;
pub mod demo;
pub mod expectation;
pub mod files;
mod harness;
mod installation;
pub mod jaeger;
pub mod light_agents;
mod logs;
pub mod manifests;
pub mod model_agents;
pub mod mounts;
pub mod namespace;
pub mod program;
mod prometheus;
mod real;
pub mod scenario;
pub mod stage;
pub mod stop;
pub mod topology;
pub mod traffic;
pub mod waits;
pub mod witness;
mod work_folder;
