//! `portolan-controller`.

use std::process::ExitCode;

fn main() -> ExitCode {
    portolan_controller::cli::run()
}
