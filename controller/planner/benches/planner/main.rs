//! Benchmarks of planning: `cargo bench -p portolan-planner`, with a part of a name after `--` as filter.
//!
//! Times are for one thread; allocations are counted in the same runs, which makes them slightly slower. At the end
//! ratios are printed that must stay near 1: the cost of a change must depend on what it affects, not on the size of
//! the cluster. Accesses nothing outside of this process.
// Benchmarks print, and panic if they measure the wrong thing.
#![allow(
    clippy::print_stdout,
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used
)]

mod changes;
mod cluster;
mod local_policy;
mod ratios;
mod scratch;

use divan::AllocProfiler;

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
    // With a filter, a list or a test run no ratios are computed.
    if std::env::args().skip(1).all(|word| word == "--bench") {
        ratios::print();
    }
}
