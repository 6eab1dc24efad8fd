//! Builds everything that the units need before any of them runs, so that no compilation disturbs timed units.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Error, Result};

use super::batch::{Outcome, Unit};
use super::copy::Copy;
use super::done::Done;
use crate::closing::Count;
use crate::nested::{self, Binary, Profile};
use crate::progress::Step;
use crate::tiers::Work;
use crate::tools::Release;
use crate::{process, tools};

/// Builds for these units. Returns the binaries and the units that can run; the others have failed.
///
/// # Errors
/// Standard output is closed.
pub(super) fn prepare(
    units: Vec<Unit>,
    copy: &Copy,
    done: &mut Done,
) -> Result<(Vec<Binary>, Vec<Unit>)> {
    let step = Step::start("Build");
    let since = Instant::now();
    let (mut units, mut built) = (units, Vec::new());
    if units.iter().any(is_built) {
        match tests_and_programs(copy) {
            Ok(binaries) => built = binaries,
            Err(error) => units = fail(units, is_built, &error, done)?,
        }
    }
    let needs_api_server = |unit: &Unit| unit.work.needs_api_server();
    if let Err(error) = control_plane(units.iter().filter(|unit| needs_api_server(unit))) {
        units = fail(units, needs_api_server, &error, done)?;
    }
    step.done(&format!(
        "{} programs and tests in {:.0} s",
        built.len(),
        since.elapsed().as_secs_f64()
    ));
    Ok((built, units))
}

/// Whether it needs a test or a program of the workspace.
fn is_built(unit: &Unit) -> bool {
    match unit.work {
        Work::Tests(..) | Work::IpvsTest(..) | Work::Images(Profile::Dev) => true,
        work => work.starts_programs(),
    }
}

/// Builds all tests of the workspace, also those that a plain `cargo test` does not run, and the programs, which
/// integration tests start. All in one invocation: with a part of them, cargo would choose other features or profiles
/// of dependencies and build most of the workspace again.
fn tests_and_programs(copy: &Copy) -> Result<Vec<Binary>> {
    let mut command = process::cargo()?;
    command
        .args(["test", "--no-run", "--workspace"])
        .args(["--lib", "--bins", "--test=*"])
        .envs(copy.environment()?);
    nested::run_in(&copy.folder, &mut command)
}

/// The tools of the control plane that these units use, if any.
fn control_plane<'a>(units: impl Iterator<Item = &'a Unit>) -> Result<()> {
    let words = units.map(|unit| match unit.work {
        Work::Cluster(scenario) => scenario.name,
        _ => tools::ALL[0],
    });
    let words: Vec<&str> = words.collect();
    if !words.is_empty() {
        tools::ensure_for(Release::Usual, &words)?;
    }
    Ok(())
}

/// Ends the units that need what was not built, and returns the others.
fn fail(
    units: Vec<Unit>,
    needs: impl Fn(&Unit) -> bool,
    error: &Error,
    done: &mut Done,
) -> Result<Vec<Unit>> {
    let (blocked, others) = units.into_iter().partition(needs);
    let blocked: Vec<Unit> = blocked;
    for unit in blocked {
        let outcome = Outcome {
            count: Count::new(0, 1),
            complaint: Some(format!("could not be prepared: {error:#}")),
            ..Outcome::default()
        };
        done.ended(unit, outcome)?;
    }
    Ok(others)
}

/// Writes the list of binaries for the processes that run units.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write(built: &[Binary], file: &Path) -> Result<()> {
    let text = serde_json::to_vec(built)?;
    std::fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}
