//! A deterministic simulation of several controllers and agents.
//!
//! One thread runs the real watches, engines, stores, streams, elections, receivers and plan watches. Time is the paused
//! clock of tokio. The API server, the network and the kernels of the nodes are simulated. A seed determines all steps:
//! changes of objects, delays, interruptions, crashes and restarts. After each step, invariants of docs/architecture are
//! checked. At the end all interruptions are removed, and every node must receive the newest plan.
//!
//! Limits: wall clocks are real, so nothing that reads them is simulated (certificates, tokens, the mass-loss guard).
//! Tasks that are ready at the same moment may run in another order when a seed is repeated.
#![forbid(unsafe_code)]

mod agent;
mod api;
mod choices;
mod contents;
mod controller;
mod expected;
mod link;
mod network;
mod objects;
mod relay;
mod requests;
mod steps;
mod watching;
mod witness;
mod world;

pub use witness::{Invariant, Violation};

/// What happened with a seed.
#[derive(Debug)]
pub struct Simulated {
    /// The steps in order, for people.
    pub steps: Vec<String>,
    /// The first violation.
    pub violation: Option<Violation>,
}

/// Simulates the steps of a seed.
///
/// # Errors
/// The simulation itself does not work.
pub fn run(seed: u64) -> Result<Simulated, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    runtime.block_on(Box::pin(world::run(seed)))
}
