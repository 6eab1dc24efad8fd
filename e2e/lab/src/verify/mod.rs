//! `cargo verify`: runs everything that has changed since it last passed, in parallel where possible, and ends with a
//! table and the sum.
//!
//! Everything is built and run in a copy of the clone, so that another clone of the same state has nothing to build.
//! Invariant: a unit that could not run, or ran no test, has failed; so has a run whose tests do not prove the rows
//! of `e2e/semantics.yaml`.

mod batch;
mod build;
mod child;
mod copy;
mod done;
mod inputs;
mod lab;
mod machine;
mod repeat;
mod report;
mod results;
mod scenarios;
mod schedule;
mod space;
mod work;
mod workspace;

use std::time::Instant;

use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::progress::{print, seconds, unix_time};
use crate::tiers::{Resource, TIERS, Tier, Work};
use crate::{cache, packages};
use batch::{Outcome, Unit};
use copy::Copy;
use done::Done;
use inputs::Inputs;
use machine::Machine;
use report::{Processors, State};
use results::{Record, Results};
pub use work::{How, run as run_units};
use workspace::Workspace;

/// The hidden command that runs the units of a batch.
pub const COMMAND: &str = "unit";

/// The options of a run.
#[derive(Debug, Args)]
pub struct Order {
    /// Runs only this tier; may be repeated
    #[arg(long = "tier", value_name = "NAME", value_parser = tiers())]
    pub tiers: Vec<String>,
    /// Runs everything, also what has passed and has not changed since
    #[arg(long)]
    pub fresh: bool,
    /// Prints what would run, and its last duration, and runs nothing
    #[arg(long)]
    pub list: bool,
    /// Runs only what failed in the last run
    #[arg(long, conflicts_with = "tiers")]
    pub failed: bool,
    /// How units run.
    #[command(flatten)]
    pub how: How,
}

/// The names of tiers.
fn tiers() -> PossibleValuesParser {
    PossibleValuesParser::new(TIERS.iter().map(|tier| tier.name))
}

/// Maximum number of concurrent batches of each kind, on two processors. Scenarios of a control plane mostly wait.
/// Guests run after them: an emulated machine needs both processors, and timed tests in it fail otherwise. Compute
/// tasks have the lowest priority and use the remaining time.
fn workers(resource: Resource) -> usize {
    match resource {
        Resource::ControlPlane | Resource::Guest => 2,
        Resource::Processor | Resource::Whole => 1,
    }
}

/// Runs the chosen tiers and returns whether everything passed.
///
/// # Errors
/// The machine cannot be prepared, or standard output is closed.
pub fn run(order: &Order) -> Result<bool> {
    let (since, before) = (Instant::now(), Processors::look());
    let tiers = choose(&order.tiers, order.how.long);
    let copy = Copy::update()?;
    if !order.list {
        space::check(&copy.target)?;
    }
    let results = Results::open()?;
    let units = match order.failed {
        true => {
            let all: Vec<&Tier> = TIERS.iter().collect();
            let long = How {
                long: true,
                ..order.how
            };
            let (failed, mut units) = (results.failed(), units(&all, &copy, long)?);
            units.retain(|unit| failed.contains(&unit.path()));
            units
        }
        false => units(&tiers, &copy, order.how)?,
    };
    let mut done = Done::default();
    let mut todo = Vec::new();
    for unit in units {
        let record = results.find(&unit);
        match record.filter(|_| !order.fresh) {
            Some(record) => done.cached(unit, record)?,
            None => todo.push(unit),
        }
    }
    if order.list {
        print(&listed(todo, done.rows.len(), &results))?;
        return Ok(true);
    }
    if !todo.is_empty() {
        run_todo(todo, order.how, &copy, &results, &mut done)?;
    }
    results.keep_failed(&done.failed())?;
    let used = Processors::look().zip(before);
    let used = used.map_or(String::new(), |(now, before)| now.since(before));
    let used = format!("{}, {used}", seconds(since.elapsed()));
    let judged = (!order.failed).then_some(&tiers[..]);
    done.close(&copy.folder, judged, order.how, &used)
}

/// What would run.
fn listed(todo: Vec<Unit>, cached: usize, results: &Results) -> String {
    let with_last = |unit: &Unit| (unit.clone(), results.newest(unit));
    let rows: Vec<_> = todo.iter().map(with_last).collect();
    let expected = |unit: &Unit| expected(results, unit);
    let batches = schedule::batches(todo, workers, expected);
    let wall = schedule::expected(&batches, workers, expected);
    report::list(&rows, cached, wall)
}

/// Builds, runs the units, and repeats the few that failed and may.
fn run_todo(
    todo: Vec<Unit>,
    how: How,
    copy: &Copy,
    results: &Results,
    done: &mut Done,
) -> Result<()> {
    print(&format!(
        "seed {}: `cargo verify --seed {0}` repeats what chance decides",
        how.seed
    ))?;
    let (binaries, todo) = build::prepare(todo, copy, done)?;
    let folder = cache::run_folder("verify")?;
    let built = folder.join("built.json");
    build::write(&binaries, &built)?;
    let batches = schedule::batches(todo, workers, |unit| expected(results, unit));
    let homes = repeat::homes(&batches);
    let run = |batch: &_, events: &_| child::run(batch, copy, &built, how, events);
    let first = done.rows.len();
    schedule::run(batches, workers, &run, |unit, outcome| {
        keep(results, &unit, &outcome)?;
        done.ended(unit, outcome)
    })?;
    let may_repeat = |at: &usize| {
        let row = &done.rows[*at];
        row.state == State::Failed && repeat::may_repeat(&row.unit)
    };
    let failures: Vec<usize> = (first..done.rows.len()).filter(may_repeat).collect();
    let rows = failures.iter().map(|at| &done.rows[*at]);
    if repeat::events(rows, &homes) > repeat::MOST_EVENTS {
        return Ok(());
    }
    for at in failures {
        let unit = done.rows[at].unit.clone();
        let again = schedule::Batch {
            resource: unit.work.resource(),
            units: vec![unit],
        };
        let mut second = Outcome::default();
        let on_end = |_, outcome| {
            second = outcome;
            Ok(())
        };
        schedule::run(vec![again], |_| 1, &run, on_end)?;
        done.repeated(at, second, &folder)?;
    }
    Ok(())
}

/// The tiers with these names; by default all that have units in this form.
fn choose(names: &[String], long: bool) -> Vec<&'static Tier> {
    let wanted = |tier: &&Tier| match names {
        [] => long || !tier.work.is_empty(),
        names => names.iter().any(|name| name == tier.name),
    };
    TIERS.iter().filter(wanted).collect()
}

/// All units of these tiers, with their keys.
fn units(tiers: &[&'static Tier], copy: &Copy, how: How) -> Result<Vec<Unit>> {
    let packages = packages::ensure()?;
    let all = || {
        tiers
            .iter()
            .flat_map(|tier| tier.selected(how.long).map(|work| (tier.name, work)))
    };
    let needs_guest = all().any(|(_, work)| work.needs_guest());
    let image = match needs_guest {
        true => crate::scenarios::guest_image(how.place, None, &packages)?,
        false => None,
    };
    let inputs = Inputs {
        files: &copy.files,
        workspace: &Workspace::read(&copy.folder)?,
        machine: &Machine::look(packages, image.as_ref())?,
        long: how.long,
    };
    let unit = |(tier, work)| Unit::new(tier, work, inputs.key(tier, work));
    Ok(all().map(unit).collect())
}

/// The expected duration of a unit: that of its last run.
fn expected(results: &Results, unit: &Unit) -> f64 {
    let last = results.newest(unit);
    match (last, unit.work) {
        (Some(record), _) => record.seconds,
        (None, Work::Scenario(scenario) | Work::Cluster(scenario)) => f64::from(scenario.seconds),
        (None, _) => 60.0,
    }
}

/// Stores passed results.
fn keep(results: &Results, unit: &Unit, outcome: &Outcome) -> Result<()> {
    if outcome.count.failed > 0 || outcome.complaint.is_some() {
        return Ok(());
    }
    let record = Record {
        passed: outcome.count.passed,
        names: outcome.seen.passed.clone(),
        seconds: outcome.took.as_secs_f64(),
        cpu: outcome.cpu,
        at: unix_time(),
    };
    results.keep(unit, &record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_tier_is_refused_with_the_names_of_all() {
        let command = Order::augment_args(clap::Command::new("verify"));
        let error = command.try_get_matches_from(["verify", "--tier", "fast"]);
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("'fast'") && error.contains("format, lint"),
            "{error}"
        );
        assert_eq!(choose(&["demo".to_owned()], false).len(), 1);
        assert_eq!(choose(&[], true).len(), TIERS.len());
        let usual = choose(&[], false);
        assert!(usual.iter().all(|tier| !tier.work.is_empty()));
        let names: Vec<&str> = usual.iter().map(|tier| tier.name).collect();
        assert_eq!(
            names.join(" "),
            "format lint pure unit namespaces nftables cluster guest demo"
        );
        assert_eq!(choose(&["kernels".to_owned()], false).len(), 1);
    }
}
