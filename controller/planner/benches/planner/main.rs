//! What planning costs: `cargo bench -p portolan-planner`, or with a part of a name behind `--`.
//!
//! Times are of one thread; allocations are counted in the same runs, which makes them a little
//! slower. At the end stand the ratios that must stay near one: a change must cost what it touches,
//! whatever the size of the cluster. Nothing outside this process is touched.
// Benchmarks print, and a panic is a fine way for one to say that it measures the wrong thing.
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
    // Who asks for some benchmarks, for a list or for a test run does not wait for ratios.
    if std::env::args().skip(1).all(|word| word == "--bench") {
        ratios::print();
    }
}
