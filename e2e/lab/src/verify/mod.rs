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
mod inputs;
mod lab;
mod machine;
mod report;
mod results;
mod scenarios;
mod schedule;
mod space;
mod work;
mod workspace;

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};

use crate::closing::Count;
use crate::progress::{print, say, seconds};
use crate::semantics::{self, Ran, Verdict};
use crate::tiers::{Resource, TIERS, Tier, Work};
use crate::{cache, packages};
use batch::{Outcome, Unit};
use copy::Copy;
use inputs::Inputs;
use machine::Machine;
use report::{Processors, Row};
use results::{Record, Results};
pub use work::{How, run as run_units};
use workspace::Workspace;

/// The hidden command that runs the units of a batch.
pub const COMMAND: &str = "unit";

/// The options of a run.
#[derive(Debug)]
pub struct Order {
    /// Names of tiers; empty for all.
    pub tiers: Vec<String>,
    /// Run everything again.
    pub fresh: bool,
    /// Only print what would run.
    pub list: bool,
    /// How units run.
    pub how: How,
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
/// A name is not a tier, the machine cannot be prepared, or standard output is closed.
pub fn run(order: &Order) -> Result<bool> {
    let (since, before) = (Instant::now(), Processors::look());
    let tiers = choose(&order.tiers, order.how.long)?;
    let copy = Copy::update()?;
    if !order.list {
        space::check(&copy.target)?;
    }
    let results = Results::open()?;
    let units = units(&tiers, &copy, order.how)?;
    let mut done = Done::default();
    let mut todo = Vec::new();
    for unit in units {
        let record = results.find(unit.tier, &unit.name, &unit.key);
        match record.filter(|_| !order.fresh) {
            Some(record) => done.cached(unit, record)?,
            None => todo.push(unit),
        }
    }
    if order.list {
        let last = |unit: &Unit| results.newest(unit.tier, &unit.name);
        let todo: Vec<_> = todo
            .iter()
            .map(|unit| (unit.tier, unit.name.as_str(), last(unit)))
            .collect();
        print(&report::list(&todo, done.rows.len()))?;
        return Ok(true);
    }
    if !todo.is_empty() {
        print(&format!(
            "seed {}: `cargo verify --seed {0}` repeats what chance decides",
            order.how.seed
        ))?;
        let (binaries, todo) = build::prepare(todo, &copy, &mut done)?;
        let built = cache::run_folder("verify")?.join("built.json");
        build::write(&binaries, &built)?;
        let expected = |unit: &Unit| expected(&results, unit);
        let batches = schedule::batches(todo, workers, expected);
        let run = |batch: &_, events: &_| child::run(batch, &copy, &built, order.how, events);
        schedule::run(batches, workers, &run, |unit, outcome| {
            keep(&results, &unit, &outcome)?;
            done.ended(unit, outcome)
        })?;
    }
    let used = Processors::look().zip(before);
    let used = used
        .map(|(now, before)| now.since(before))
        .unwrap_or_default();
    done.close(
        &copy.folder,
        &tiers,
        order.how.long,
        &format!("{}, {used}", seconds(since.elapsed())),
    )
}

/// The tiers with these names; by default all that have units in this form.
fn choose(names: &[String], long: bool) -> Result<Vec<&'static Tier>> {
    for name in names {
        if !TIERS.iter().any(|tier| tier.name == name) {
            let all: Vec<&str> = TIERS.iter().map(|tier| tier.name).collect();
            bail!(
                "there is no tier `{name}`; the tiers are {}",
                all.join(", ")
            );
        }
    }
    let wanted = |tier: &&Tier| match names {
        [] => long || !tier.work.is_empty(),
        names => names.iter().any(|name| name == tier.name),
    };
    Ok(TIERS.iter().filter(wanted).collect())
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
    let unit = |(tier, work): (&'static str, Work)| Unit {
        tier,
        name: work.name(),
        work,
        key: inputs.key(tier, work),
    };
    Ok(all().map(unit).collect())
}

/// The expected duration of a unit: that of its last run.
fn expected(results: &Results, unit: &Unit) -> f64 {
    let last = results.newest(unit.tier, &unit.name);
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
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let record = Record {
        passed: outcome.count.passed,
        names: outcome.seen.passed.clone(),
        seconds: outcome.took.as_secs_f64(),
        cpu: outcome.cpu,
        at: now.as_secs(),
    };
    results.keep(unit.tier, &unit.name, &unit.key, &record)
}

/// The ended units.
#[derive(Default)]
struct Done {
    rows: Vec<Row>,
    ran: Ran,
}

impl Done {
    fn cached(&mut self, unit: Unit, record: Record) -> Result<()> {
        let age = record.age();
        print(&format!(
            "{} {}: {} passed (cached, {} ago)",
            unit.tier,
            unit.name,
            record.passed,
            report::ago(age)
        ))?;
        self.ran
            .entry(unit.tier)
            .or_default()
            .passed
            .extend(record.names);
        self.rows.push(Row {
            tier: unit.tier,
            unit: unit.name,
            count: Count {
                passed: record.passed,
                failed: 0,
            },
            complaint: None,
            took: Duration::from_secs_f64(record.seconds),
            cpu: record.cpu,
            cached: Some(age),
        });
        Ok(())
    }

    /// Prints a unit's output and its result.
    fn ended(&mut self, unit: Unit, outcome: Outcome) -> Result<()> {
        let passed = outcome.count.failed == 0;
        let mut out = std::io::stdout().lock();
        writeln!(out, "\n== {} {} ==", unit.tier, unit.name)?;
        out.write_all(&outcome.output)?;
        drop(out);
        if let Some(complaint) = &outcome.complaint {
            say(&format!("{} {}: {complaint}", unit.tier, unit.name));
        }
        let again = match passed {
            true => String::new(),
            false => format!("; alone: {}", unit.work.command()),
        };
        print(&format!(
            "== {} {}: {} in {}{again} ==",
            unit.tier,
            unit.name,
            if passed { "passed" } else { "FAILED" },
            seconds(outcome.took),
        ))?;
        self.ran.entry(unit.tier).or_default().add(outcome.seen);
        self.rows.push(Row {
            tier: unit.tier,
            unit: unit.name,
            count: outcome.count,
            complaint: outcome.complaint,
            took: outcome.took,
            cpu: outcome.cpu,
            cached: None,
        });
        Ok(())
    }

    /// Prints the table, the sum, and the state of the behaviour table.
    fn close(mut self, copy: &Path, tiers: &[&Tier], long: bool, used: &str) -> Result<bool> {
        print(&format!("\n{}{used}", report::table(&mut self.rows)))?;
        let mut sum = Count::default();
        self.rows.iter().for_each(|row| sum += row.count);
        print(&format!("{} passed, {} failed", sum.passed, sum.failed))?;
        for tier in tiers {
            self.ran.entry(tier.name).or_default();
        }
        let verdict = shown(copy, &self.ran, long)?;
        for complaint in &verdict.complaints {
            print(&format!("{}: {complaint}", semantics::FILE))?;
        }
        print(&verdict.summary)?;
        Ok(sum.failed == 0 && verdict.complaints.is_empty())
    }
}

/// The state of the behaviour table according to the tests that ran.
fn shown(copy: &Path, ran: &Ran, long: bool) -> Result<Verdict> {
    let path = copy.join(semantics::FILE);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(semantics::judge(&text, ran, long))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_tier_is_refused_with_the_names_of_all() {
        let error = choose(&["fast".to_owned()], false).unwrap_err().to_string();
        assert!(
            error.contains("`fast`") && error.contains("format, lint"),
            "{error}"
        );
        assert_eq!(choose(&["demo".to_owned()], false).unwrap().len(), 1);
        assert_eq!(choose(&[], true).unwrap().len(), TIERS.len());
        let usual = choose(&[], false).unwrap();
        assert!(usual.iter().all(|tier| !tier.work.is_empty()));
        let names: Vec<&str> = usual.iter().map(|tier| tier.name).collect();
        assert_eq!(
            names.join(" "),
            "format lint pure unit namespaces cluster guest demo"
        );
        assert_eq!(choose(&["kernels".to_owned()], false).unwrap().len(), 1);
    }
}
