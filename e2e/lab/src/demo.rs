//! `cargo demo`: prepares, builds, boots, and lets the scenarios' program show the main job.

use std::io::Write;

use anyhow::Result;

use crate::progress::say;
use crate::scenarios::{self, Mode, Place};

/// Runs the demo and returns its exit status.
///
/// # Errors
/// The machine cannot be prepared, a build failed, or the guest died.
pub fn run(place: Place, mode: Mode, sink: &mut (dyn Write + Send)) -> Result<u8> {
    if mode.keep {
        say(
            "It stays until Ctrl-C. A root shell in the same kernel: `cargo lab guest shell`, then \
             for example `ip netns` and `ip netns exec NAME ipvsadm -Ln`.",
        );
    }
    let words: &[&str] = if mode.keep {
        &["demo", "--keep"]
    } else {
        &["demo"]
    };
    scenarios::run(words, place, mode, sink)
}

/// Whether this is how the demo ends when it has shown everything.
#[must_use]
pub fn closes_well(line: &str) -> bool {
    !line.is_empty()
}
