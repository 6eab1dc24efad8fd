//! Runs the property tests of decoders and of both ends of the stream with more cases. Their values are valid messages,
//! which a fuzzer finds late.

use std::io::Write;

use anyhow::Result;

use crate::{packages, process, scenarios};

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
        &["--package=portolan-controller", "--test=stream", "fuzz"],
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
        let code = scenarios::exit_of(&mut command, sink)?;
        if code != 0 {
            return Ok(code);
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nested;

    #[test]
    fn every_named_test_program_exists() {
        let folder = |package: &str| match package {
            "portolan-proto" => "proto",
            "portolan-agent" => "node-agent",
            "portolan-controller" => "controller",
            other => panic!("{other}: add the folder of the package here"),
        };
        for (what, words) in TESTS {
            let named = |flag| words.iter().find_map(|word| word.strip_prefix(flag));
            let package = folder(named("--package=").unwrap());
            let file = match named("--test=") {
                Some(test) => format!("{package}/tests/{test}.rs"),
                None => format!("{package}/src/receive/fuzz.rs"),
            };
            assert!(nested::root().join(&file).is_file(), "{what}: no {file}");
        }
    }
}
