//! Breaks the planner on purpose, one rule at a time, and checks that the named test fails.
//!
//! The mutations are in `controller/planner/tests/mutations.yaml`. Invariant: the clone is only read. Everything
//! happens in a copy in the lab's cache.

mod known;
mod scratch;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write;
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::libtest::{self, Verdict};
use crate::nested::{self, Binary};
use crate::progress::Step;
use crate::{cache, packages, process};

use known::Known;
use scratch::Scratch;
use table::Row;

/// The package that is broken.
const PACKAGE: &str = "portolan-planner";
/// Its folder in the clone.
const FOLDER: &str = "controller/planner";
/// The path of the table in the clone.
const TABLE: &str = "controller/planner/tests/mutations.yaml";

/// The same cases of each law every time, and no shrinking: the failure of a row's test must be reproducible.
const PROPTEST: &[(&str, &str)] = &[
    ("PROPTEST_CASES", "256"),
    ("PROPTEST_RNG_SEED", "1"),
    ("PROPTEST_MAX_SHRINK_ITERS", "0"),
    ("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true"),
];

/// Compilation takes most of the time of a row. Incremental compilation reduces it to a third, regardless of the
/// settings for other builds. Broken code has warnings.
const CHEAP: &[(&str, &str)] = &[
    ("CARGO_PROFILE_DEV_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_DEV_DEBUG", "0"),
    ("CARGO_INCREMENTAL", "1"),
    ("RUSTFLAGS", "--cap-lints=allow"),
];

/// Limit of a test program's processor time: a mutation may make it loop for ever.
const PROCESSOR_SECONDS: f64 = 120.0;
/// Limit of its memory, bytes: or make it allocate without end.
const MEMORY: u64 = 4 << 30;

/// The outcome of a row.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The named test failed.
    Killed,
    /// It passed.
    Survived,
    /// The row does not fit the planner or its tests.
    Wrong(String),
}

/// Applies each row whose name contains `only`, or all rows, and returns whether every named test failed. Writes the
/// results to `sink`. Without `long`: the first row of each file, and every row that is new or whose file has changed
/// since the last run without survivors.
///
/// # Errors
/// The table cannot be read, no row matches, the copy cannot be made, the tests fail without a mutation, or the sink
/// is closed.
pub fn run(only: Option<&str>, long: bool, sink: &mut dyn Write) -> Result<bool> {
    packages::ensure()?;
    let path = nested::root().join(TABLE);
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {TABLE}"))?;
    let rows = table::choose(table::parse(&text).context(TABLE)?, only)?;
    let scratch = Scratch::prepare(&nested::root())?;
    let mut known = Known::read(scratch.folder());
    let all = rows.clone();
    let rows = match long {
        true => rows,
        false => short_form(rows, |row| known.is_as_before(row, &scratch)),
    };
    let planner = Planner { scratch };
    let tests = planner.unbroken()?;
    let mut outcomes = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let step = Step::start(&format!("{}/{} {}", number + 1, rows.len(), row.name));
        let outcome = planner.outcome(row, &tests)?;
        step.done(match &outcome {
            Outcome::Killed => "killed",
            Outcome::Survived => "SURVIVED",
            Outcome::Wrong(_) => "WRONG ROW",
        });
        outcomes.push(outcome);
    }
    let (text, all_killed) = report(&rows, &outcomes);
    if all_killed && only.is_none() {
        known.replace(&all, &planner.scratch)?;
    }
    sink.write_all(text.as_bytes())
        .context("writing the results")?;
    Ok(all_killed)
}

/// The first row of each file, and every row that has changed or whose file has.
fn short_form(rows: Vec<Row>, is_as_before: impl Fn(&Row) -> bool) -> Vec<Row> {
    let mut files = BTreeSet::new();
    let mut chosen = rows;
    chosen.retain(|row| files.insert(row.path()) || !is_as_before(row));
    chosen
}

/// The tests of the unbroken planner by name, with the kind and name of their target.
type Tests = BTreeMap<String, (String, String)>;

/// A copy of the planner for mutations.
struct Planner {
    scratch: Scratch,
}

impl Planner {
    /// Runs all its tests; they must pass.
    fn unbroken(&self) -> Result<Tests> {
        let step = Step::start("the tests of the planner as it is");
        let mut tests = Tests::new();
        for binary in self.build(&["--lib", "--tests"], false)? {
            let (output, ended) = self.test(&binary, &[])?;
            let found = libtest::verdicts(&output);
            let failed = found.iter().filter(|(_, v)| **v != Verdict::Passed);
            let failed: Vec<&str> = failed.map(|(name, _)| *name).collect();
            if !ended.success() || !failed.is_empty() {
                bail!(
                    "tests of {PACKAGE} fail though nothing is broken: {}; look at `cargo test \
                     --package {PACKAGE}` ({ended})",
                    failed.join(", ")
                );
            }
            let target = (binary.kind.clone(), binary.name.clone());
            tests.extend(
                found
                    .keys()
                    .map(|name| ((*name).to_owned(), target.clone())),
            );
        }
        step.done(&format!("{} passed", tests.len()));
        Ok(tests)
    }

    fn outcome(&self, row: &Row, tests: &Tests) -> Result<Outcome> {
        let (file, target) = match (self.scratch.read(&row.path()), target(row, tests)) {
            (Ok(file), Ok(target)) => (file, target),
            (Err(error), _) | (_, Err(error)) => return Ok(Outcome::Wrong(format!("{error:#}"))),
        };
        let broken = match row.apply(&file) {
            Ok(broken) => broken,
            Err(error) => return Ok(Outcome::Wrong(format!("{error:#}"))),
        };
        self.scratch.write(&row.path(), &broken)?;
        let outcome = self.run_row(row, target);
        self.scratch.write(&row.path(), &file)?;
        outcome
    }

    fn run_row(&self, row: &Row, (kind, name): &(String, String)) -> Result<Outcome> {
        let words: &[&str] = match kind.as_str() {
            "test" => &["--test", name],
            _ => &["--lib"],
        };
        let Ok(built) = self.build(words, true) else {
            let problem = "not run; it does not compile, the compiler's words are above";
            return Ok(Outcome::Wrong(problem.to_owned()));
        };
        let Some(binary) = built.iter().find(|binary| binary.name == *name) else {
            bail!("cargo built no test program `{name}` of {PACKAGE}");
        };
        let (output, ended) = self.test(binary, &["--exact", &row.fails])?;
        Ok(match libtest::verdicts(&output).get(row.fails.as_str()) {
            Some(Verdict::Failed) => Outcome::Killed,
            Some(Verdict::Passed) => Outcome::Survived,
            Some(Verdict::NotRun) | None => Outcome::Wrong(format!(
                "no verdict, the program ended before ({ended}): {}",
                process::last_lines(output.as_bytes(), 3)
            )),
        })
    }

    fn build(&self, targets: &[&str], again: bool) -> Result<Vec<Binary>> {
        let mut command = process::cargo()?;
        command
            .args(["test", "--no-run", "--locked", "--package", PACKAGE])
            .args(targets)
            .envs(CHEAP.iter().copied())
            .env("CARGO_TARGET_DIR", self.scratch.target());
        if again {
            // All dependencies were downloaded for the unbroken planner.
            command.args(["--offline", "--quiet"]);
        }
        let built = nested::run_in(self.scratch.clone_folder(), &mut command)?;
        let tests = |binary: &Binary| matches!(binary.kind.as_str(), "lib" | "test");
        Ok(built.into_iter().filter(tests).collect())
    }

    /// The output of a test program, and its exit.
    fn test(&self, binary: &Binary, words: &[&str]) -> Result<(String, std::process::ExitStatus)> {
        let limit = PROCESSOR_SECONDS * cache::slowness()?;
        let mut command = process::limited(&binary.path, limit, MEMORY)?;
        command
            .args(words)
            .envs(PROPTEST.iter().copied())
            .current_dir(self.scratch.clone_folder().join(FOLDER))
            .stderr(Stdio::null());
        let output = process::finish(&mut command)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok((text, output.status))
    }
}

/// The target of a row's test.
fn target<'a>(row: &Row, tests: &'a Tests) -> Result<&'a (String, String)> {
    tests.get(&row.fails).with_context(|| {
        format!(
            "{PACKAGE} has no test `{}`; `cargo test --package {PACKAGE} -- --list` names them all",
            row.fails
        )
    })
}

/// The survivors, the invalid rows, and the closing line.
fn report(rows: &[Row], outcomes: &[Outcome]) -> (String, bool) {
    let mut text = String::new();
    let mut killed = 0;
    for (row, outcome) in rows.iter().zip(outcomes) {
        let (word, why) = match outcome {
            Outcome::Killed => {
                killed += 1;
                continue;
            }
            Outcome::Survived => ("SURVIVED", "the test passes all the same"),
            Outcome::Wrong(why) => ("WRONG ROW", why.as_str()),
        };
        if text.is_empty() {
            text = format!("{:<10} MUTATION\n", "OUTCOME");
        }
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{word:<10} {}\n{:<10} {} {:?}\n{:<10} {}: {why}",
            row.name,
            "",
            row.path().display(),
            row.find,
            "",
            row.fails,
        );
    }
    let failed = rows.len() - killed;
    let _ = writeln!(text, "{killed} passed, {failed} failed");
    (text, failed == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, fails: &str) -> Row {
        let text = format!("[{{name: {name}, file: a.rs, find: x, replace: y, fails: {fails}}}]");
        table::parse(&text).unwrap().remove(0)
    }

    #[test]
    fn a_row_whose_test_is_not_known_is_wrong_and_a_known_one_is_found_in_its_target() {
        let of_tests = ("test".to_owned(), "planner".to_owned());
        let tests = Tests::from([("cases::nodes".to_owned(), of_tests.clone())]);
        assert_eq!(
            target(&row("a", "cases::nodes"), &tests).unwrap(),
            &of_tests
        );
        // libtest would take it for a filter without matches, and report success.
        let error = target(&row("a", "nodes"), &tests).unwrap_err().to_string();
        assert!(error.contains("has no test `nodes`"), "{error}");
    }

    #[test]
    fn the_short_form_has_a_row_of_each_file_and_what_was_not_seen() {
        let row = |name: &str, file: &str| {
            let text = format!("[{{name: {name}, file: {file}, find: x, replace: y, fails: t}}]");
            table::parse(&text).unwrap().remove(0)
        };
        let rows = vec![
            row("one", "a.rs"),
            row("two", "a.rs"),
            row("three", "a.rs"),
            row("four", "b.rs"),
        ];
        let names = |rows: Vec<Row>| rows.into_iter().map(|row| row.name).collect::<Vec<_>>();
        assert_eq!(names(short_form(rows.clone(), |_| true)), ["one", "four"]);
        assert_eq!(
            names(short_form(rows, |row| row.name != "three")),
            ["one", "three", "four"]
        );
    }

    #[test]
    fn survivors_and_wrong_rows_are_reported_and_counted_as_failed() {
        let rows = [row("one", "t"), row("two", "t"), row("three", "t")];
        let wrong = Outcome::Wrong("no such test".to_owned());
        let (text, all_killed) = report(&rows, &[Outcome::Killed, Outcome::Survived, wrong]);
        assert!(!all_killed);
        assert_eq!(
            text,
            "OUTCOME    MUTATION\n\
             SURVIVED   two\n           controller/planner/src/a.rs \"x\"\n\
             \u{20}          t: the test passes all the same\n\
             WRONG ROW  three\n           controller/planner/src/a.rs \"x\"\n\
             \u{20}          t: no such test\n\
             1 passed, 2 failed\n"
        );
        let (text, all_killed) = report(&rows[..1], &[Outcome::Killed]);
        assert!(all_killed);
        assert_eq!(text, "1 passed, 0 failed\n");
    }
}
