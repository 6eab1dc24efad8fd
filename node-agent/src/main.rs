//! The `portolan-agent` program.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// A first plan and a look at the whole kernel take many times what stays of them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    portolan_agent::cli::main()
}
