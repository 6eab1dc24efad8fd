//! The `portolan-agent` program.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// A first plan takes several times the memory that the agent keeps, in pieces of every size. The C
/// library's allocator keeps the pages of such a moment for good.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    portolan_agent::cli::main()
}
