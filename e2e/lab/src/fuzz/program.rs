//! Builds the fuzzer, and starts it for a target.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::Order;
use crate::{cache, nested, process};

/// The manifest of the program.
const MANIFEST: &str = "e2e/fuzz/Cargo.toml";
/// Its name.
const NAME: &str = "portolan-fuzz";

/// The flags of cargo-fuzz without a sanitizer. All of them are stable.
const FLAGS: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Maximum length of an input, bytes.
const MAX_INPUT_BYTES: usize = 64 * 1024;
/// Maximum time of one input, seconds.
const MAX_INPUT_SECONDS: u64 = 10;
/// Maximum memory, MB.
const MAX_MEMORY: u64 = 2048;

/// Builds it, or reuses a fresh one.
///
/// # Errors
/// The build failed.
pub(super) fn build() -> Result<PathBuf> {
    let mut command = process::cargo()?;
    // With a named target, build scripts and macros are compiled without the flags.
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    command
        .args(["build", "--release", "--locked", "--target", &triple])
        .args(["--manifest-path", MANIFEST, "--target-dir"])
        .arg(cache::folder("fuzz/target")?)
        .env("RUSTFLAGS", FLAGS.join(" "));
    let built = nested::run_in(&nested::root(), &mut command)?;
    let found = built.into_iter().find(|binary| binary.name == NAME);
    let found = found.with_context(|| format!("cargo built no program `{NAME}`"))?;
    Ok(found.path)
}

/// The command that runs a target with the built program. New inputs go to the first folder.
///
/// # Errors
/// The cache cannot be written.
pub(super) fn command(
    program: &Path,
    target: &str,
    order: &Order,
    folders: &[PathBuf],
) -> Result<Command> {
    let found = cache::folder("fuzz/findings")?.join(format!("{target}-"));
    let mut command = process::built(program)?;
    command
        .env("PORTOLAN_FUZZ_TARGET", target)
        .arg(order.limit())
        // libFuzzer takes 32 bits, and 0 means a random seed.
        .arg(format!("-seed={}", order.seed % 0xffff_fffe + 1))
        .arg(format!("-max_len={MAX_INPUT_BYTES}"))
        .arg(format!("-timeout={MAX_INPUT_SECONDS}"))
        .arg(format!("-rss_limit_mb={MAX_MEMORY}"))
        .arg("-print_final_stats=1")
        .arg(format!("-artifact_prefix={}", found.display()))
        .args(folders);
    Ok(command)
}
