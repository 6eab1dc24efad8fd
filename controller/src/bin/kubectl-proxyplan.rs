//! `kubectl proxyplan`.

use std::process::ExitCode;

fn main() -> ExitCode {
    portolan_controller::plugin::run()
}
