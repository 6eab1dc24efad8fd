//! `cargo demo`: prepares, builds, boots, and runs the demo of the scenarios' program.

use std::io::Write;

use anyhow::Result;

use crate::closing::Counter;
use crate::progress::say;
use crate::scenarios::{self, Mode, OnApiServer, Place};
use crate::traced::Traces;

/// Prefix of the demo's last line.
const GOOD_VERDICT: &str = "ok ";

/// Runs the demo, with further arguments, and returns its exit status.
///
/// # Errors
/// The machine cannot be prepared, a build failed, or the guest died.
pub fn run(place: Place, mode: Mode, more: &[&str], sink: &mut (dyn Write + Send)) -> Result<u8> {
    let mut words = [&["demo"], more].concat();
    if mode.keep {
        say("It will run until Ctrl-C. A shell in the guest's kernel: `cargo lab guest shell`");
        words.push("--keep");
    }
    scenarios::run(&words, place, mode, sink)
}

/// Runs the demo with a real API server and returns its exit status. With `traces` it also follows a change in Jaeger
/// and draws it.
///
/// # Errors
/// As [`run`], the control plane cannot be built or does not start, or the trace cannot be drawn.
pub fn run_cluster(
    place: Place,
    traces: Option<&Traces>,
    sink: &mut (dyn Write + Send),
) -> Result<u8> {
    let on = OnApiServer::prepare(place, traces.is_some())?;
    let mut counter = Counter::new(sink);
    let code = on.run(&["demo", "--cluster"], &mut counter)?;
    // Without a trace the demo has failed before, and printed why.
    if let (Some(traces), Some(trace)) = (traces, counter.trace) {
        traces.draw(&on, &trace)?;
    }
    Ok(code)
}

/// Whether this last line means that the demo is complete.
#[must_use]
pub fn closes_well(line: &str) -> bool {
    line.starts_with(GOOD_VERDICT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_good_verdict_closes_the_demo_well() {
        let title = "a Service from a manifest to two kernels";
        assert!(closes_well(&format!("ok     {title}")));
        for bad in [&*format!("FAILED {title}"), "okay", ""] {
            assert!(!closes_well(bad), "{bad}");
        }
    }
}
