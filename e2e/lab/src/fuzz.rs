//! Runs the tests of decoders and of both ends of the stream with more cases.

use std::io::Write;

use anyhow::Result;

use crate::{nested, packages, process, scenarios};

/// The tests with a configurable number of cases, as cargo arguments.
const TESTS: &[(&str, &[&str])] = &[
    (
        "decoders of the wire",
        &["--package=portolan-proto", "--test=laws"],
    ),
    (
        "the agent's end of the stream",
        &["--package=portolan-agent", "--lib", "receive::fuzz"],
    ),
    (
        "the controller's end of the stream",
        &["--package=portolan-controller", "--test=serve", "fuzz"],
    ),
];

/// Runs them with `cases` cases each and returns the first non-zero exit status.
///
/// # Errors
/// Packages are missing and cannot be installed, or cargo cannot be started.
pub fn run(cases: u32, sink: &mut dyn Write) -> Result<u8> {
    packages::ensure()?;
    let cases = cases.to_string();
    for (what, words) in TESTS {
        writeln!(sink, "{what}: {cases} cases")?;
        let mut command = process::cargo()?;
        command
            .args(["test", "--release"])
            .args(*words)
            .env("PORTOLAN_FUZZ_CASES", &cases)
            .env("PROPTEST_CASES", &cases);
        let code = scenarios::exit_code(nested::stream(&mut command, sink)?);
        if code != 0 {
            return Ok(code);
        }
    }
    Ok(0)
}
