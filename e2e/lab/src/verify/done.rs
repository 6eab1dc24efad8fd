//! The ended units of a run: printed when they end, and judged together at its end.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::batch::{Outcome, Unit};
use super::repeat;
use super::report::{self, Row, State};
use super::results::Record;
use super::work::How;
use crate::closing::Count;
use crate::progress::{print, say, seconds};
use crate::seen::Seen;
use crate::semantics::{self, Ran, Verdict};
use crate::tiers::Tier;

#[derive(Default)]
pub(super) struct Done {
    pub(super) rows: Vec<Row>,
}

impl Done {
    pub(super) fn cached(&mut self, unit: Unit, record: Record) -> Result<()> {
        let age = record.age();
        print(&format!(
            "{}: {} passed (cached, {} ago)",
            unit.title(),
            record.passed,
            report::ago(age)
        ))?;
        let mut outcome = Outcome {
            count: Count::new(record.passed, 0),
            took: Duration::from_secs_f64(record.seconds),
            cpu: record.cpu,
            ..Outcome::default()
        };
        outcome.seen.passed = record.names;
        let state = State::Cached(age);
        self.rows.push(Row {
            unit,
            outcome,
            state,
        });
        Ok(())
    }

    /// Prints a unit's output and its result.
    pub(super) fn ended(&mut self, unit: Unit, outcome: Outcome) -> Result<()> {
        let (state, result) = match outcome.count.failed {
            0 => (State::Passed, "passed"),
            _ => (State::Failed, "FAILED"),
        };
        print_outcome(&unit, &outcome, result)?;
        self.rows.push(Row {
            unit,
            outcome,
            state,
        });
        Ok(())
    }

    /// The second attempt of a failed unit, by its row, has ended.
    pub(super) fn repeated(&mut self, at: usize, second: Outcome, folder: &Path) -> Result<()> {
        let row = &mut self.rows[at];
        if second.count.failed > 0 {
            return print_outcome(&row.unit, &second, "FAILED again, alone");
        }
        print_outcome(&row.unit, &second, "flaky: passed alone")?;
        row.state = State::Flaky(repeat::write(folder, row, &second)?);
        row.outcome = Outcome {
            took: row.outcome.took,
            cpu: row.outcome.cpu,
            ..second
        };
        Ok(())
    }

    /// The failed units, as `TIER/NAME`.
    pub(super) fn failed(&self) -> Vec<String> {
        let failed = self.rows.iter().filter(|row| row.state == State::Failed);
        failed.map(|row| row.unit.path()).collect()
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
        self.rows.iter().for_each(|row| sum += row.outcome.count);
        let not_well = report::not_well(&self.rows, how.seed);
        print(&format!(
            "{not_well}{} passed, {} failed",
            sum.passed, sum.failed
        ))?;
        let Some(tiers) = tiers else {
            return Ok(sum.failed == 0);
        };
        let mut ran: Ran = tiers
            .iter()
            .map(|tier| (tier.name, Seen::default()))
            .collect();
        for Row { unit, outcome, .. } in self.rows {
            ran.entry(unit.tier).or_default().add(outcome.seen);
        }
        let verdict = shown(copy, &ran, how.long)?;
        for complaint in &verdict.complaints {
            print(&format!("{}: {complaint}", semantics::FILE))?;
        }
        print(&verdict.summary)?;
        Ok(sum.failed == 0 && verdict.complaints.is_empty())
    }
}

fn print_outcome(unit: &Unit, outcome: &Outcome, result: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let title = unit.title();
    writeln!(out, "\n== {title} ==")?;
    out.write_all(&outcome.output)?;
    drop(out);
    if let Some(complaint) = &outcome.complaint {
        say(&format!("{title}: {complaint}"));
    }
    let took = seconds(outcome.took);
    print(&format!("== {title}: {result} in {took} =="))?;
    Ok(())
}

/// The state of the behaviour table according to the tests that ran.
fn shown(copy: &Path, ran: &Ran, long: bool) -> Result<Verdict> {
    let path = copy.join(semantics::FILE);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(semantics::judge(&text, ran, long))
}
