//! The `portolan-agent` program.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    portolan_agent::cli::main()
}
