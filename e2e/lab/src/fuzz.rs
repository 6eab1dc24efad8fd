//! Throws more at decoders and at both ends of the stream than every run of the tests does.

use std::io::Write;

use anyhow::Result;

use crate::{nested, packages, process, scenarios};

/// The tests that take a number of cases, by the arguments that cargo finds them with.
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

/// Runs them with so many cases each and returns the first exit status that is not 0.
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
