//! The ended units of a run: printed when they end, and judged together at its end.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::batch::{Outcome, Unit};
use super::repeat::{self, Failure};
use super::report::{self, Row, State};
use super::results::Record;
use super::work::How;
use crate::closing::Count;
use crate::progress::{print, say, seconds};
use crate::semantics::{self, Ran, Verdict};
use crate::tiers::Tier;

#[derive(Default)]
pub(super) struct Done {
    pub(super) rows: Vec<Row>,
    ran: Ran,
}

impl Done {
    pub(super) fn cached(&mut self, unit: Unit, record: Record) -> Result<()> {
        let age = record.age();
        print(&format!(
            "{} {}: {} passed (cached, {} ago)",
            unit.tier,
            unit.name,
            record.passed,
            report::ago(age)
        ))?;
        let seen = self.ran.entry(unit.tier).or_default();
        seen.passed.extend(record.names);
        self.rows.push(Row {
            tier: unit.tier,
            again: unit.work.command(),
            unit: unit.name,
            count: Count {
                passed: record.passed,
                failed: 0,
            },
            complaint: None,
            took: Duration::from_secs_f64(record.seconds),
            cpu: record.cpu,
            state: State::Cached(age),
        });
        Ok(())
    }

    /// Prints a unit's output and its result. Returns a failure that may be repeated: its tests are judged later.
    pub(super) fn ended(&mut self, unit: Unit, outcome: Outcome) -> Result<Option<Failure>> {
        let passed = outcome.count.failed == 0;
        print_outcome(&unit, &outcome, if passed { "passed" } else { "FAILED" })?;
        self.rows.push(Row {
            tier: unit.tier,
            unit: unit.name.clone(),
            count: outcome.count,
            complaint: outcome.complaint.clone(),
            took: outcome.took,
            cpu: outcome.cpu,
            again: unit.work.command(),
            state: if passed { State::Passed } else { State::Failed },
        });
        if !passed && repeat::may_repeat(&unit) {
            return Ok(Some(Failure { unit, outcome }));
        }
        self.ran.entry(unit.tier).or_default().add(outcome.seen);
        Ok(None)
    }

    /// A failure that is not repeated.
    pub(super) fn failed_at_last(&mut self, failure: Failure) {
        let Failure { unit, outcome } = failure;
        self.ran.entry(unit.tier).or_default().add(outcome.seen);
    }

    /// The second attempt of a failed unit has ended.
    pub(super) fn repeated(
        &mut self,
        first: Failure,
        second: Outcome,
        folder: &Path,
    ) -> Result<()> {
        let passed = second.count.failed == 0;
        let how = if passed {
            "flaky: passed alone"
        } else {
            "FAILED again, alone"
        };
        print_outcome(&first.unit, &second, how)?;
        if !passed {
            self.failed_at_last(first);
            return Ok(());
        }
        let outputs = repeat::write(folder, &first, &second)?;
        let is_it = |row: &&mut Row| (row.tier, &*row.unit) == (first.unit.tier, &*first.unit.name);
        if let Some(row) = self.rows.iter_mut().find(is_it) {
            row.count = second.count;
            row.complaint = None;
            row.state = State::Flaky(outputs);
        }
        self.ran
            .entry(first.unit.tier)
            .or_default()
            .add(second.seen);
        Ok(())
    }

    /// The failed units, as `TIER/NAME`.
    pub(super) fn failed(&self) -> Vec<String> {
        let failed = self.rows.iter().filter(|row| row.count.failed > 0);
        failed
            .map(|row| format!("{}/{}", row.tier, row.unit))
            .collect()
    }

    /// Prints the table, the sum, what failed, and the state of the behaviour table, which is judged by whole tiers
    /// only. Returns whether all is well.
    pub(super) fn close(
        mut self,
        copy: &Path,
        tiers: Option<&[&Tier]>,
        how: How,
        used: &str,
    ) -> Result<bool> {
        print(&format!("\n{}{used}", report::table(&mut self.rows)))?;
        let mut sum = Count::default();
        self.rows.iter().for_each(|row| sum += row.count);
        let not_well = report::not_well(&self.rows, how.seed);
        print(&format!(
            "{not_well}{} passed, {} failed",
            sum.passed, sum.failed
        ))?;
        let Some(tiers) = tiers else {
            return Ok(sum.failed == 0);
        };
        for tier in tiers {
            self.ran.entry(tier.name).or_default();
        }
        let verdict = shown(copy, &self.ran, how.long)?;
        for complaint in &verdict.complaints {
            print(&format!("{}: {complaint}", semantics::FILE))?;
        }
        print(&verdict.summary)?;
        Ok(sum.failed == 0 && verdict.complaints.is_empty())
    }
}

fn print_outcome(unit: &Unit, outcome: &Outcome, result: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n== {} {} ==", unit.tier, unit.name)?;
    out.write_all(&outcome.output)?;
    drop(out);
    if let Some(complaint) = &outcome.complaint {
        say(&format!("{} {}: {complaint}", unit.tier, unit.name));
    }
    let took = seconds(outcome.took);
    print(&format!(
        "== {} {}: {result} in {took} ==",
        unit.tier, unit.name
    ))?;
    Ok(())
}

/// The state of the behaviour table according to the tests that ran.
fn shown(copy: &Path, ran: &Ran, long: bool) -> Result<Verdict> {
    let path = copy.join(semantics::FILE);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(semantics::judge(&text, ran, long))
}
