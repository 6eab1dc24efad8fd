//! Builds everything that the units need before any of them runs, so that no compilation disturbs timed units.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use super::batch::{Outcome, Unit};
use super::copy::Copy;
use super::done::Done;
use crate::closing::Count;
use crate::nested::{self, Binary, Profile};
use crate::progress::Step;
use crate::tiers::{Targets, Work};
use crate::tools::Release;
use crate::{process, tools};

/// A build and the units that need it.
type Part = (fn(&Unit) -> bool, fn(&Copy, &[Unit]) -> Result<Vec<Binary>>);

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
    let steps: [Part; 2] = [
        (
            |unit| runs_tests(unit) || runs_programs(unit),
            tests_and_programs,
        ),
        (|unit| unit.work.needs_api_server(), control_plane),
    ];
    for (needs, make) in steps {
        if !units.iter().any(needs) {
            continue;
        }
        match make(copy, &units) {
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
        | Work::Nftables(..)
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
        | Work::NftablesDemo
        | Work::ClusterDemo => true,
        _ => false,
    }
}

/// Builds all tests of the workspace, also those that a plain `cargo test` does not run, and the programs, which
/// integration tests start. All in one invocation: with a part of them, cargo would choose other features or profiles
/// of dependencies and build most of the workspace again.
fn tests_and_programs(copy: &Copy, _: &[Unit]) -> Result<Vec<Binary>> {
    let mut command = process::cargo()?;
    command
        .args(["test", "--no-run", "--workspace"])
        .args(["--lib", "--bins", "--test=*"])
        .envs(copy.environment()?);
    nested::run_in(&copy.folder, &mut command)
}

/// The tools of the control plane that these units use.
fn control_plane(_: &Copy, units: &[Unit]) -> Result<Vec<Binary>> {
    let units = units.iter().filter(|unit| unit.work.needs_api_server());
    let words: Vec<&str> = units
        .map(|unit| match unit.work {
            Work::Cluster(scenario) => scenario.name,
            _ => tools::ALL[0],
        })
        .collect();
    tools::ensure_for(Release::Usual, &words).map(|_| Vec::new())
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
