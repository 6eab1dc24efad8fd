//! Builds everything that the units need before any of them runs, so that no compilation disturbs timed units.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use super::Done;
use super::batch::{Outcome, Unit};
use super::copy::Copy;
use crate::closing::Count;
use crate::nested::{self, Binary, Profile};
use crate::progress::Step;
use crate::tiers::{Targets, Work};
use crate::{process, tools};

/// Tests that a plain `cargo test` does not run.
const NAMED: &[&str] = &["--test=kernel", "--test=namespaces"];

/// A build and the units that need it.
type Part = (fn(&Unit) -> bool, fn(&Copy) -> Result<Vec<Binary>>);

/// Builds for these units. Returns the binaries and the units that can run; the others have failed.
///
/// # Errors
/// Standard output is closed.
pub(super) fn prepare(
    units: Vec<Unit>,
    copy: &Copy,
    done: &mut Done,
) -> Result<(Vec<Binary>, Vec<Unit>)> {
    let mut built = Vec::new();
    let mut units = units;
    let step = Step::start("Build");
    let since = Instant::now();
    let steps: [Part; 3] = [
        (runs_tests, tests),
        (runs_programs, programs),
        (
            |unit| unit.work.needs_api_server(),
            |_| tools::ensure().map(|_| Vec::new()),
        ),
    ];
    for (needs, make) in steps {
        if !units.iter().any(needs) {
            continue;
        }
        match make(copy) {
            Ok(binaries) => built.extend(binaries),
            Err(error) => {
                let (blocked, others) = units.into_iter().partition(needs);
                units = others;
                fail(blocked, &format!("{error:#}"), done)?;
            }
        }
    }
    step.done(&format!(
        "{} programs and tests in {:.0} s",
        built.len(),
        since.elapsed().as_secs_f64()
    ));
    Ok((built, units))
}

fn runs_tests(unit: &Unit) -> bool {
    matches!(unit.work, Work::Tests(..) | Work::IpvsTest(..))
}

fn runs_programs(unit: &Unit) -> bool {
    match unit.work {
        Work::Tests(package, targets) => package == "portolan-e2e" && targets != Targets::Library,
        Work::Scenario(_)
        | Work::Kernel(_)
        | Work::Cluster(_)
        | Work::Kubernetes(_)
        | Work::Images(Profile::Dev)
        | Work::ShippedScenarios(_)
        | Work::ShippedCluster(_)
        | Work::RealKit
        | Work::Real(_)
        | Work::RealCommand(_)
        | Work::Demo
        | Work::ClusterDemo => true,
        _ => false,
    }
}

/// Builds all tests of the workspace. Together, because cargo unifies the features of dependencies over everything
/// built together: building parts would rebuild most dependencies.
fn tests(copy: &Copy) -> Result<Vec<Binary>> {
    let test = ["test", "--no-run", "--workspace"];
    let mut built = build(copy, &[&test[..], &["--lib", "--bins", "--tests"]].concat())?;
    built.extend(build(copy, &[&test[..], NAMED].concat())?);
    built.retain(|binary| binary.tests);
    Ok(built)
}

fn programs(copy: &Copy) -> Result<Vec<Binary>> {
    let packages = nested::PACKAGES
        .iter()
        .flat_map(|package| ["--package", package]);
    let words: Vec<&str> = ["build"].into_iter().chain(packages).collect();
    build(copy, &words)
}

fn build(copy: &Copy, words: &[&str]) -> Result<Vec<Binary>> {
    let mut command = process::cargo()?;
    command.args(words).envs(copy.environment()?);
    nested::run_in(&copy.folder, &mut command)
}

fn fail(units: Vec<Unit>, why: &str, done: &mut Done) -> Result<()> {
    for unit in units {
        let outcome = Outcome {
            count: Count {
                passed: 0,
                failed: 1,
            },
            complaint: Some(format!("could not be prepared: {why}")),
            ..Outcome::default()
        };
        done.ended(unit, outcome)?;
    }
    Ok(())
}

/// Writes the list of binaries for the processes that run units.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write(built: &[Binary], file: &Path) -> Result<()> {
    let text = serde_json::to_vec(built)?;
    std::fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}
