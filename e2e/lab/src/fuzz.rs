//! `cargo lab fuzz`: runs the targets of `e2e/fuzz-targets` with libFuzzer and coverage guidance, on the stable compiler.
//!
//! The program is `e2e/fuzz`. Found inputs, new inputs of the corpora and the build are in the lab's cache.

pub mod messages;
mod program;
mod report;
pub(crate) mod seeds;

use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use crate::progress::{Step, unix_time};
use crate::{cache, nested, packages, process};
use report::Row;

/// The folder with a folder of inputs for each target.
const CORPUS: &str = "e2e/fuzz-targets/corpus";
/// Seconds of each target in `cargo verify --long`.
pub const LONG_SECONDS: u64 = 120;

/// What to run.
#[derive(Debug, Args)]
pub struct Order {
    /// Targets, the folders of e2e/fuzz-targets/corpus; default: all
    #[arg(value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Number of inputs of each target
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub runs: u64,
    /// Time of each target in seconds, instead of a number of inputs
    #[arg(long, value_name = "N", conflicts_with = "runs")]
    pub seconds: Option<u64>,
    /// Seed of the inputs, to repeat another run; default: from the clock
    #[arg(long, value_name = "N", default_value_t = unix_time(), hide_default_value = true)]
    pub seed: u64,
    /// Format of the results
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Runs the property tests of messages instead, with this number of cases each
    #[arg(long, value_name = "N", conflicts_with_all = ["targets", "runs", "seconds", "seed", "output"])]
    pub cases: Option<u32>,
}

/// The format of results.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Format {
    /// A table
    Table,
    /// JSON
    Json,
}

impl Order {
    /// When a target ends, as an option of libFuzzer.
    fn limit(&self) -> String {
        match self.seconds {
            None => format!("-runs={}", self.runs),
            Some(seconds) => format!("-max_total_time={seconds}"),
        }
    }
}

/// Runs targets, writes a table, and returns whether none of them has a finding.
///
/// # Errors
/// A name is not a target, the program cannot be built, or the sink is closed.
pub fn run(order: &Order, sink: &mut dyn Write) -> Result<bool> {
    packages::ensure()?;
    let targets = chosen(&all_targets()?, &order.targets)?;
    let fuzzer = program::build()?;
    let seeds = cache::folder("fuzz/seeds")?;
    seeds::copy(&nested::root(), &seeds)?;
    let mut rows = Vec::new();
    for target in targets {
        let step = Step::start(&format!("fuzz {target}"));
        let started = Instant::now();
        let kept = cache::folder(&format!("fuzz/corpus/{target}"))?;
        let mut folders = vec![kept, nested::root().join(CORPUS).join(&target)];
        folders.extend(Some(seeds.join(&target)).filter(|folder| folder.is_dir()));
        let output = process::finish(&mut program::command(&fuzzer, &target, order, &folders)?)?;
        let seconds = started.elapsed().as_secs();
        let text = String::from_utf8_lossy(&output.stderr);
        let row = Row::parse(&target, seconds, output.status.success(), &text)?;
        step.done(match &row.finding {
            None => "nothing found",
            Some(_) => "FINDING",
        });
        rows.push(row);
    }
    let text = match order.output {
        Format::Json => report::json(&rows)?,
        Format::Table => report::table(&rows),
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

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

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
        let limit = |words: &[&str]| {
            let command = Order::augment_args(clap::Command::new("fuzz"));
            let matches = command.try_get_matches_from([&["fuzz"], words].concat());
            Order::from_arg_matches(&matches.unwrap()).unwrap().limit()
        };
        assert_eq!(limit(&[]), "-runs=1000000");
        assert_eq!(limit(&["--runs", "5"]), "-runs=5");
        assert_eq!(limit(&["--seconds", "7"]), "-max_total_time=7");
    }
}
