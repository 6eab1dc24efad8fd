//! `portolan-scenarios`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    portolan_e2e::cli::main()
}
