//! The final report: a table of all units, the slowest first, and sums.

use std::cmp::Reverse;
use std::path::PathBuf;
use std::time::Duration;

use super::batch::{Outcome, Unit};
use super::results::Record;
use crate::closing::Count;

/// A unit that has ended: a line of the table.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) unit: Unit,
    pub(super) outcome: Outcome,
    pub(super) state: State,
}

/// How a unit ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    Passed,
    Failed,
    /// It failed, then passed alone; the file has both outputs.
    Flaky(PathBuf),
    /// It passed this long ago.
    Cached(Duration),
}

impl Row {
    fn cached(&self) -> Option<Duration> {
        match self.state {
            State::Cached(age) => Some(age),
            State::Passed | State::Failed | State::Flaky(_) => None,
        }
    }
}

/// The failed and the flaky units, with the command that repeats each; empty if there are none.
pub(super) fn not_well(rows: &[Row], seed: u64) -> String {
    let mut text = String::new();
    for Row { unit, state, .. } in rows {
        let (title, again) = (unit.title(), unit.work.command());
        match state {
            State::Failed => text += &format!("FAILED {title}: {again}\n"),
            State::Flaky(outputs) => {
                let outputs = outputs.display();
                text += &format!("flaky  {title}: {again}; outputs: {outputs}\n");
            }
            State::Passed | State::Cached(_) => {}
        }
    }
    if rows.iter().any(|row| row.state == State::Failed) {
        text += &format!("`cargo verify --failed --seed {seed}` repeats what failed\n");
    }
    text
}

/// The table, the failures, and the number of cached results.
pub(super) fn table(rows: &mut [Row]) -> String {
    rows.sort_by_key(|row| (row.cached().is_some(), Reverse(row.outcome.took)));
    let names = rows.iter().map(|row| row.unit.name.len());
    let width = names.max().unwrap_or(0).max(4);
    let mut text = format!(
        "{:<11}{:<width$}{:>8}{:>8}{:>9}{:>8}{:>8}\n",
        "TIER", "UNIT", "PASSED", "FAILED", "SECONDS", "CPU", "IDLE"
    );
    for Row {
        unit,
        outcome,
        state,
    } in rows.iter()
    {
        let Count { passed, failed } = outcome.count;
        let (took, cpu) = (outcome.took.as_secs_f64(), outcome.cpu);
        let idle = (took - cpu).max(0.0);
        let note = match state {
            State::Cached(_) => "  (cached)",
            State::Flaky(_) => "  (flaky)",
            State::Passed | State::Failed => "",
        };
        text += &format!(
            "{:<11}{:<width$}{passed:>8}{failed:>8}{took:>9.1}{cpu:>8.1}{idle:>8.1}{note}\n",
            unit.tier, unit.name
        );
    }
    for Row { unit, outcome, .. } in rows.iter() {
        if let Some(complaint) = &outcome.complaint {
            // The rest, perhaps a console's last lines, was printed when it happened.
            let line = complaint.lines().next().unwrap_or_default();
            text += &format!("{}: {line}\n", unit.title());
        }
    }
    text + &cached(rows)
}

/// What would run, with the last durations, and the number of results to reuse.
pub(super) fn list(todo: &[(Unit, Option<Record>)], cached: usize, wall: f64) -> String {
    let mut text = String::new();
    let mut sum = 0.0;
    for (Unit { tier, name, .. }, last) in todo {
        let last = last.as_ref().map(|last| last.seconds);
        text += &match last {
            Some(seconds) => format!("{tier:<11}{name:<57}{seconds:>8.1} s\n"),
            None => format!("{tier:<11}{name:<57}{:>10}\n", "not known"),
        };
        sum += last.unwrap_or_default();
    }
    text + &format!(
        "{} units would run, which took {sum:.0} s the last time, one after the other; {cached} results would be reused\n\
         expected: {:.0} min after the builds\n",
        todo.len(),
        (wall / 60.0).ceil()
    )
}

/// The number and ages of cached results; empty if there are none.
fn cached(rows: &[Row]) -> String {
    let ages: Vec<Duration> = rows.iter().filter_map(Row::cached).collect();
    let (Some(youngest), Some(oldest)) = (ages.iter().min(), ages.iter().max()) else {
        return String::new();
    };
    let between = match (ago(*youngest), ago(*oldest)) {
        (young, old) if young == old => old,
        (young, old) => format!("{old} to {young}"),
    };
    format!(
        "{} of {} results are cached, from {between} ago; --fresh runs everything again\n",
        ages.len(),
        rows.len()
    )
}

/// A duration, rounded.
pub(super) fn ago(age: Duration) -> String {
    let minutes = age.as_secs() / 60;
    match minutes {
        0 => format!("{} s", age.as_secs()),
        1..120 => format!("{minutes} min"),
        120..2880 => format!("{} h", minutes / 60),
        _ => format!("{} days", minutes / 1440),
    }
}

/// Use of the processors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Processors {
    idle: u64,
    all: u64,
    count: usize,
}

impl Processors {
    /// Since boot.
    pub(super) fn look() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        let first = stat.lines().next()?.strip_prefix("cpu ")?;
        let times = first.split_whitespace();
        let times: Vec<u64> = times.take(8).map_while(|time| time.parse().ok()).collect();
        let is_one = |line: &&str| {
            let number = line.strip_prefix("cpu");
            number.is_some_and(|number| number.starts_with(|sign: char| sign.is_ascii_digit()))
        };
        Some(Self {
            // Idle, and waiting for a disk.
            idle: times.get(3)? + times.get(4)?,
            all: times.iter().sum(),
            count: stat.lines().filter(is_one).count(),
        })
    }

    /// A sentence about the use since an earlier sample.
    pub(super) fn since(self, before: Self) -> String {
        let all = self.all.saturating_sub(before.all).max(1);
        let idle = self.idle.saturating_sub(before.idle) * 100 / all;
        format!("{} processors, idle {idle} % of the time", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiers::{Scenario, Targets, Work};

    fn unit(name: &'static str) -> Unit {
        let scenario = Scenario { name, seconds: 1 };
        Unit::new("guest", Work::Scenario(scenario), String::new())
    }

    fn row(name: &'static str, failed: u64, millis: u64, cpu: f64, cached: Option<u64>) -> Row {
        Row {
            unit: unit(name),
            outcome: Outcome {
                count: Count::new(3, failed),
                took: Duration::from_millis(millis),
                cpu,
                ..Outcome::default()
            },
            state: match (cached, failed) {
                (Some(age), _) => State::Cached(Duration::from_secs(age)),
                (None, 0) => State::Passed,
                (None, _) => State::Failed,
            },
        }
    }

    #[test]
    fn what_would_be_run_is_listed_with_its_last_time() {
        let record = Record {
            passed: 3,
            names: std::collections::BTreeSet::new(),
            seconds: 12.34,
            cpu: 1.0,
            at: 0,
        };
        let tests = Work::Tests("ipvs-rs", Targets::All);
        let todo = [
            (unit("udp"), Some(record)),
            (Unit::new("pure", tests, String::new()), None),
        ];
        let text = list(&todo, 7, 61.0);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("guest      udp") && lines[0].ends_with("12.3 s"));
        assert!(lines[1].ends_with("not known"));
        assert_eq!(
            lines[2],
            "2 units would run, which took 12 s the last time, one after the other; 7 results would be reused"
        );
        assert_eq!(lines[3], "expected: 2 min after the builds");
    }

    #[test]
    fn the_slowest_unit_comes_first_then_those_that_were_not_run() {
        let mut rows = [
            row("boot", 0, 1_040, 0.5, None),
            row("old", 0, 99_000, 2.0, Some(90)),
            row("drift", 1, 61_000, 70.0, None),
            row("older", 0, 1_000, 2.0, Some(9000)),
        ];
        rows[2].outcome.complaint = Some("the guest died\nconsole".to_owned());
        assert_eq!(
            table(&mut rows),
            "TIER       UNIT   PASSED  FAILED  SECONDS     CPU    IDLE\n\
             guest      drift       3       1     61.0    70.0     0.0\n\
             guest      boot        3       0      1.0     0.5     0.5\n\
             guest      old         3       0     99.0     2.0    97.0  (cached)\n\
             guest      older       3       0      1.0     2.0     0.0  (cached)\n\
             guest drift: the guest died\n\
             2 of 4 results are cached, from 2 h to 1 min ago; --fresh runs everything again\n"
        );
        assert!(!table(&mut rows[..1]).contains("cached"));
    }

    #[test]
    fn what_failed_and_what_is_flaky_ends_the_run_with_the_command_that_repeats_it() {
        let mut rows = [
            row("boot", 0, 1_040, 0.5, None),
            row("udp", 0, 1_000, 0.5, None),
        ];
        assert_eq!(not_well(&rows, 7), "");
        rows[1].state = State::Flaky("/r/flaky-guest-udp.txt".into());
        let flaky = "flaky  guest udp: cargo lab scenarios udp; outputs: /r/flaky-guest-udp.txt\n";
        assert_eq!(not_well(&rows, 7), flaky);
        rows[0].state = State::Failed;
        assert_eq!(
            not_well(&rows, 7),
            format!(
                "FAILED guest boot: cargo lab scenarios boot\n{flaky}\
                 `cargo verify --failed --seed 7` repeats what failed\n"
            )
        );
    }

    #[test]
    fn processors_are_idle_when_they_do_nothing_or_wait_for_a_disk() {
        let look = |user: u64, idle: u64, disk: u64| {
            let text =
                format!("cpu  {user} 0 10 {idle} {disk} 0 0 0 0 0\ncpu0 1\ncpu1 1\nintr 5\n");
            Processors::parse(&text).unwrap()
        };
        let since = look(150, 130, 20).since(look(100, 100, 0));
        assert_eq!(since, "2 processors, idle 50 % of the time");
        assert!(Processors::parse("").is_none());
    }
}
