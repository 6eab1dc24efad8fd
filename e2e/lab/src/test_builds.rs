//! Test programs that only long runs build: in another workspace, and with the options of released programs.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::nested::{self, Binary};
use crate::{cache, process};

/// The manifest of the tests that try orders of threads.
pub const SCHEDULES: &str = "e2e/schedules/Cargo.toml";
/// The profile of tests that are compiled like released programs.
const SHIPPED: &str = "shipped-test";

/// Builds the tests that try orders of threads, or reuses fresh ones.
///
/// # Errors
/// The build failed.
pub fn of_schedules() -> Result<Vec<Binary>> {
    let mut command = process::cargo()?;
    command
        .args(["test", "--no-run", "--release", "--locked"])
        .args(["--manifest-path", SCHEDULES, "--target-dir"])
        .arg(cache::folder("schedules/target")?);
    build(&mut command)
}

/// Builds the tests of these packages with the options of released programs, or reuses fresh ones.
///
/// # Errors
/// The build failed.
pub fn as_shipped(packages: &[&str]) -> Result<Vec<Binary>> {
    let mut command = process::cargo()?;
    command.args(["test", "--no-run", "--profile", SHIPPED]);
    command.args(["--lib", "--bins", "--tests"]);
    for package in packages {
        command.args(["--package", package]);
    }
    build(&mut command)
}

fn build(command: &mut Command) -> Result<Vec<Binary>> {
    let mut built = nested::run_in(&nested::root(), command)?;
    built.retain(|binary| binary.tests);
    ensure!(
        !built.is_empty(),
        "`{}` built no test program",
        process::shown(command)
    );
    Ok(built)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_and_the_profile_exist() {
        assert!(nested::root().join(SCHEDULES).is_file());
        let manifest = std::fs::read_to_string(nested::root().join("Cargo.toml")).unwrap();
        assert!(manifest.contains(&format!("\n[profile.{SHIPPED}]\ninherits = \"shipped\"\n")));
    }
}
