//! Runs tiers, shows what they print, and closes with a table and the sum.
//!
//! Invariant: a tier that could not run, or ran no test, has failed; and so has a run whose tests do
//! not show what `e2e/semantics.yaml` says they show.

use std::fmt::Write as _;
use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::closing::{Count, Counter};
use crate::progress::{print, say, seconds};
use crate::scenarios::{Mode, Place};
use crate::seen::Seen;
use crate::semantics::{self, Ran, Verdict};
use crate::tiers::{TIERS, Tier, Work};
use crate::traced::Traces;
use crate::{cluster, demo, images, mutate, nested, packages, process, scenarios, test_program};

/// What came of one tier.
struct Outcome {
    name: &'static str,
    count: Count,
    /// What its own output does not tell.
    complaints: Vec<String>,
    took: Duration,
}

/// Runs the named tiers, or all, and returns whether everything passed.
///
/// # Errors
/// A name is no tier's, or standard output is closed.
pub fn run(names: &[String], place: Place) -> Result<bool> {
    let chosen = choose(names)?;
    let mut outcomes = Vec::new();
    let mut ran = Ran::new();
    for tier in chosen {
        print(&format!("\n== {}: {} ==", tier.name, tier.title))?;
        let since = Instant::now();
        let (count, complaints, seen) = run_tier(tier, place)?;
        ran.insert(tier.name, seen);
        let took = since.elapsed();
        print(&format!(
            "== {}: {} in {} ==",
            tier.name,
            if count.failed == 0 {
                "passed"
            } else {
                "FAILED"
            },
            seconds(took)
        ))?;
        outcomes.push(Outcome {
            name: tier.name,
            count,
            complaints,
            took,
        });
    }
    print(&format!("\n{}", table(&outcomes)))?;
    let mut sum = Count::default();
    outcomes.iter().for_each(|outcome| sum += outcome.count);
    print(&format!("{} passed, {} failed", sum.passed, sum.failed))?;
    let verdict = shown(&ran)?;
    for complaint in &verdict.complaints {
        print(&format!("{}: {complaint}", semantics::FILE))?;
    }
    print(&verdict.summary)?;
    Ok(sum.failed == 0 && verdict.complaints.is_empty())
}

/// What the tests that ran show of the behaviour table.
fn shown(ran: &Ran) -> Result<Verdict> {
    let path = nested::root().join(semantics::FILE);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(semantics::judge(&text, ran))
}

fn choose(names: &[String]) -> Result<Vec<&'static Tier>> {
    for name in names {
        if !TIERS.iter().any(|tier| tier.name == name) {
            let all: Vec<&str> = TIERS.iter().map(|tier| tier.name).collect();
            bail!(
                "there is no tier `{name}`; the tiers are {}",
                all.join(", ")
            );
        }
    }
    let wanted = |tier: &&Tier| names.is_empty() || names.iter().any(|name| name == tier.name);
    Ok(TIERS.iter().filter(wanted).collect())
}

fn run_tier(tier: &Tier, place: Place) -> Result<(Count, Vec<String>, Seen)> {
    let mut sum = Count::default();
    let mut complaints = Vec::new();
    let mut seen = Seen::default();
    for work in tier.work {
        let mut counter = Counter::new(io::stdout());
        let result = run_work(*work, place, &mut counter);
        counter.finish().context("writing to standard output")?;
        let (count, complaint) = judge(*work, counter.count, result);
        sum += count;
        seen.passed.append(&mut counter.seen.passed);
        seen.failed.append(&mut counter.seen.failed);
        if let Some(complaint) = complaint {
            let complaint = format!("{}: {}: {complaint}", tier.name, work.shown());
            say(&complaint);
            complaints.push(complaint);
        }
    }
    Ok((sum, complaints, seen))
}

/// Runs one piece and says whether its program ended well.
fn run_work(work: Work, place: Place, counter: &mut Counter<io::Stdout>) -> Result<bool> {
    match work {
        Work::Check(words) => {
            let mut command = process::cargo()?;
            command.args(words).env("RUSTDOCFLAGS", "-D warnings");
            Ok(nested::stream(&mut command, counter)?.success())
        }
        Work::Test(words) => {
            let [option, value] = test_program::words();
            let named = [&[option.as_str(), value.as_str()], words].concat();
            cargo_test(&named, counter)
        }
        Work::Examples(packages) => {
            counter.seen.program("doc");
            let words: Vec<&str> = packages.iter().copied().chain(["--doc"]).collect();
            cargo_test(&words, counter)
        }
        Work::IpvsTest(package, test, words) => {
            counter.seen.program(&format!("{package}::{test}"));
            let path = nested::test_binary(package, test)?;
            Ok(scenarios::run_test(&path, words, place, counter)? == 0)
        }
        Work::Scenarios(words) => Ok(scenarios::run(words, place, Mode::default(), counter)? == 0),
        Work::Cluster(words) => Ok(cluster::run_scenarios(words, counter)? == 0),
        Work::Mutations => mutate::run(None, counter),
        Work::Images => images::verify(counter),
        Work::Demo | Work::ClusterDemo => {
            let (name, code) = match work {
                Work::ClusterDemo => {
                    // Nobody is there to look on.
                    let traces = Traces::default();
                    ("cluster", demo::run_cluster(place, Some(&traces), counter)?)
                }
                _ => ("demo", demo::run(place, Mode::default(), counter)?),
            };
            counter.finish()?;
            counter
                .seen
                .close(name, code == 0 && demo::closes_well(&counter.last));
            ensure!(
                code != 0 || demo::closes_well(&counter.last),
                "the demo exited with 0 but its last line is `{}`",
                counter.last
            );
            Ok(code == 0)
        }
    }
}

fn cargo_test(words: &[&str], counter: &mut Counter<io::Stdout>) -> Result<bool> {
    // Tests start programs of the table too.
    packages::ensure()?;
    let mut command = process::cargo()?;
    command.args(["test", "--no-fail-fast"]).args(words);
    Ok(nested::stream(&mut command, counter)?.success())
}

/// What counts for a piece of work, and what is wrong with it if its own counts do not tell.
fn judge(work: Work, seen: Count, result: Result<bool>) -> (Count, Option<String>) {
    let one = |passed: bool| Count {
        passed: passed.into(),
        failed: (!passed).into(),
    };
    let failed_too = Count {
        failed: seen.failed + 1,
        ..seen
    };
    match (work, result) {
        (_, Err(error)) => (
            failed_too,
            Some(format!("could not be run to its end: {error:#}")),
        ),
        (Work::Check(_) | Work::Demo | Work::ClusterDemo, Ok(passed)) => (one(passed), None),
        (_, Ok(false)) if seen.failed == 0 => (
            failed_too,
            Some("its program failed without telling of a failed test".to_owned()),
        ),
        (Work::Examples(_), Ok(_)) => (seen, None),
        (_, Ok(true)) if seen.all() == 0 => (one(false), Some("no test was run".to_owned())),
        (_, Ok(_)) => (seen, None),
    }
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "{:<12}{:>8}{:>8}{:>10}\n",
        "TIER", "PASSED", "FAILED", "SECONDS"
    );
    for outcome in outcomes {
        let (count, seconds) = (outcome.count, outcome.took.as_secs_f64());
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<12}{:>8}{:>8}{seconds:>10.1}",
            outcome.name, count.passed, count.failed
        );
    }
    for complaint in outcomes.iter().flat_map(|outcome| &outcome.complaints) {
        // The rest of it, a console's last lines perhaps, was shown when it happened.
        let _ = writeln!(text, "{}", complaint.lines().next().unwrap_or_default());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: Work = Work::Test(&[]);
    const TWO: Count = Count {
        passed: 2,
        failed: 0,
    };
    const NONE: Count = Count {
        passed: 0,
        failed: 0,
    };

    fn judged(work: Work, seen: Count, result: Result<bool>) -> (u64, u64) {
        let (count, _) = judge(work, seen, result);
        (count.passed, count.failed)
    }

    #[test]
    fn a_piece_that_ran_no_test_has_failed_though_it_exited_with_0() {
        assert_eq!(judged(TEST, NONE, Ok(true)), (0, 1));
        assert_eq!(judged(Work::Scenarios(&[]), NONE, Ok(true)), (0, 1));
        assert_eq!(judged(Work::Examples(&[]), NONE, Ok(true)), (0, 0));
    }

    #[test]
    fn a_piece_that_failed_without_a_failed_test_has_failed() {
        assert_eq!(judged(TEST, TWO, Ok(false)), (2, 1));
        assert_eq!(judged(TEST, TWO, Err(anyhow::anyhow!("no guest"))), (2, 1));
        assert_eq!(judged(Work::Check(&[]), NONE, Ok(false)), (0, 1));
        assert_eq!(
            judged(Work::Demo, TWO, Err(anyhow::anyhow!("no guest"))),
            (2, 1)
        );
    }

    #[test]
    fn counts_of_the_runners_are_taken_as_they_are() {
        assert_eq!(judged(TEST, TWO, Ok(true)), (2, 0));
        assert_eq!(
            judged(
                TEST,
                Count {
                    passed: 2,
                    failed: 3
                },
                Ok(false)
            ),
            (2, 3)
        );
        assert_eq!(judged(Work::Check(&[]), NONE, Ok(true)), (1, 0));
    }

    #[test]
    fn the_table_is_aligned_and_what_went_wrong_follows_in_one_line_each() {
        let outcome = |name, passed, failed, millis| Outcome {
            name,
            count: Count { passed, failed },
            complaints: Vec::new(),
            took: Duration::from_millis(millis),
        };
        let mut guest = outcome("guest", 140, 1, 61_040);
        guest.complaints = vec!["guest: scenarios: the guest died\nconsole".to_owned()];
        assert_eq!(
            table(&[outcome("format", 1, 0, 830), guest]),
            "TIER          PASSED  FAILED   SECONDS\n\
             format             1       0       0.8\n\
             guest            140       1      61.0\n\
             guest: scenarios: the guest died\n"
        );
    }

    #[test]
    fn an_unknown_tier_is_refused_with_the_names_of_all() {
        let error = choose(&["fast".to_owned()]).unwrap_err().to_string();
        assert!(
            error.contains("`fast`") && error.contains("format, lint"),
            "{error}"
        );
        assert_eq!(choose(&["demo".to_owned()]).unwrap().len(), 1);
        assert_eq!(choose(&[]).unwrap().len(), TIERS.len());
    }
}
