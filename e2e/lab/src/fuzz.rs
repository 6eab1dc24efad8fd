//! `cargo lab fuzz`: runs the targets of `e2e/fuzz-targets` with libFuzzer and coverage guidance, on the stable compiler.
//!
//! The program is `e2e/fuzz`. Found inputs, new inputs of the corpora and the build are in the lab's cache.

mod messages;
mod program;
mod report;
mod seeds;

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::progress::Step;
use crate::{cache, nested, packages, process};
use program::Fuzzer;
use report::Row;

/// The folder with a folder of inputs for each target.
const CORPUS: &str = "e2e/fuzz-targets/corpus";
/// Seconds of each target in `cargo verify --long`.
pub const LONG_SECONDS: u64 = 120;

/// When a target ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// After this number of inputs.
    Runs(u64),
    /// After this time.
    Seconds(u64),
}

impl Limit {
    /// The option of libFuzzer.
    fn option(self) -> String {
        match self {
            Self::Runs(runs) => format!("-runs={runs}"),
            Self::Seconds(seconds) => format!("-max_total_time={seconds}"),
        }
    }
}

/// What to run.
#[derive(Debug)]
pub struct Order {
    /// Names of targets; empty for all.
    pub targets: Vec<String>,
    /// When each of them ends.
    pub limit: Limit,
    /// The seed of the mutations.
    pub seed: u64,
    /// Whether the results are printed as JSON.
    pub json: bool,
}

/// Runs the property tests of messages with this number of cases, and returns the first non-zero exit status.
///
/// # Errors
/// Packages are missing and cannot be installed, or cargo cannot be started.
pub fn run_messages(cases: u32, sink: &mut dyn Write) -> Result<u8> {
    messages::run(cases, sink)
}

/// Runs targets, writes a table, and returns whether none of them has a finding.
///
/// # Errors
/// A name is not a target, the program cannot be built, or the sink is closed.
pub fn run(order: &Order, sink: &mut dyn Write) -> Result<bool> {
    packages::ensure()?;
    let targets = chosen(&all_targets()?, &order.targets)?;
    let fuzzer = Fuzzer::build()?;
    let seeds = cache::folder("fuzz/seeds")?;
    seeds::copy(&nested::root(), &seeds)?;
    let mut rows = Vec::new();
    for target in targets {
        let step = Step::start(&format!("fuzz {target}"));
        let started = Instant::now();
        let kept = cache::folder(&format!("fuzz/corpus/{target}"))?;
        let mut folders = vec![kept, nested::root().join(CORPUS).join(&target)];
        folders.extend(Some(seeds.join(&target)).filter(|folder| folder.is_dir()));
        let output = process::finish(&mut fuzzer.command(&target, order, &folders)?)?;
        let seconds = started.elapsed().as_secs();
        let text = String::from_utf8_lossy(&output.stderr);
        let row = Row::parse(&target, seconds, output.status.success(), &text)?;
        step.done(match &row.finding {
            None => "nothing found",
            Some(_) => "FINDING",
        });
        rows.push(row);
    }
    let text = match order.json {
        true => report::json(&rows)?,
        false => report::table(&rows),
    };
    sink.write_all(text.as_bytes())
        .context("writing the results")?;
    Ok(rows.iter().all(|row| row.finding.is_none()))
}

/// The names of all targets: their folders.
fn all_targets() -> Result<Vec<String>> {
    let folder = nested::root().join(CORPUS);
    let reading = || format!("reading {}", folder.display());
    let entries = std::fs::read_dir(&folder).with_context(reading)?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.with_context(reading)?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// The targets with these names, or all.
fn chosen(all: &[String], names: &[String]) -> Result<Vec<String>> {
    if let Some(name) = names.iter().find(|name| !all.contains(name)) {
        bail!(
            "there is no target `{name}`; the targets are {}",
            all.join(", ")
        );
    }
    let is_chosen = |name: &&String| names.is_empty() || names.contains(name);
    Ok(all.iter().filter(is_chosen).cloned().collect())
}

/// The folder of inputs with findings.
fn findings() -> Result<PathBuf> {
    cache::folder("fuzz/findings")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_chosen_by_name_and_an_unknown_one_is_refused_with_all_names() {
        let all = all_targets().unwrap();
        assert!(all.contains(&"manifests".to_owned()), "{all:?}");
        assert_eq!(chosen(&all, &[]).unwrap(), all);
        let one = ["manifests".to_owned()];
        assert_eq!(chosen(&all, &one).unwrap(), one);
        let error = chosen(&all, &["x".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("ipvs_replies"), "{error}");
    }

    #[test]
    fn a_limit_is_an_option_of_libfuzzer() {
        assert_eq!(Limit::Runs(5).option(), "-runs=5");
        assert_eq!(Limit::Seconds(7).option(), "-max_total_time=7");
    }
}
