//! Breaks code on purpose, one place at a time, and checks that the named test fails.
//!
//! Each [`Subject`] has a table of mutations. Invariant: the clone is only read. Everything happens in a copy in the lab's
//! cache.

mod known;
mod scratch;
mod subject;
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
pub use subject::Subject;
use table::Row;

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

/// Limit of a test program's memory, bytes: a mutation may make it allocate without end.
const MEMORY: u64 = 4 << 30;

/// The outcome of a row.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The named test failed.
    Killed,
    /// It passed.
    Survived,
    /// The row does not fit the code or its tests.
    Wrong(String),
}

/// Applies each row whose name contains `only`, or all rows, and returns whether every named test failed. Writes the
/// results to `sink`. Without `long`: the first row of each file, and every row that is new or whose file has changed
/// since the last run without survivors.
///
/// # Errors
/// The table cannot be read, no row matches, the copy cannot be made, the tests fail without a mutation, or the sink
/// is closed.
pub fn run(subject: Subject, only: Option<&str>, long: bool, sink: &mut dyn Write) -> Result<bool> {
    packages::ensure()?;
    let table = subject.facts().table;
    let path = nested::root().join(table);
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {table}"))?;
    let rows = table::parse(&text, subject.facts().sources).context(table)?;
    let rows = table::choose(rows, only)?;
    let scratch = Scratch::prepare(&nested::root())?;
    let known = Known::read(&scratch.folder, subject);
    let all = rows.clone();
    let rows = match long {
        true => rows,
        false => short_form(rows, |row| known.is_as_before(row, &scratch)),
    };
    let copy = BrokenCopy { subject, scratch };
    let tests = copy.unbroken()?;
    let mut outcomes = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let step = Step::start(&format!("{}/{} {}", number + 1, rows.len(), row.name));
        let outcome = copy.outcome(row, &tests)?;
        step.done(match &outcome {
            Outcome::Killed => "killed",
            Outcome::Survived => "SURVIVED",
            Outcome::Wrong(_) => "WRONG ROW",
        });
        outcomes.push(outcome);
    }
    let (text, all_killed) = report(&rows, &outcomes);
    if all_killed && only.is_none() {
        known.replace(&all, &copy.scratch)?;
    }
    sink.write_all(text.as_bytes())
        .context("writing the results")?;
    Ok(all_killed)
}

/// The first row of each file, and every row that has changed or whose file has.
fn short_form(rows: Vec<Row>, is_as_before: impl Fn(&Row) -> bool) -> Vec<Row> {
    let mut files = BTreeSet::new();
    let mut chosen = rows;
    chosen.retain(|row| files.insert(row.path().to_owned()) || !is_as_before(row));
    chosen
}

/// The tests of the unbroken code by name, with the kind and name of their target.
type Tests = BTreeMap<String, (String, String)>;

/// A copy of the code for mutations.
struct BrokenCopy {
    subject: Subject,
    scratch: Scratch,
}

impl BrokenCopy {
    /// Runs all tests of the package; they must pass.
    fn unbroken(&self) -> Result<Tests> {
        let package = self.subject.facts().package;
        let step = Step::start(&format!("the tests of {package} as it is"));
        let mut tests = Tests::new();
        for binary in self.build(&["--lib", "--tests"], false)? {
            let (output, ended) = self.test(&binary, &[])?;
            let found = libtest::verdicts(&output);
            let failed = found.iter().filter(|(_, v)| **v != Verdict::Passed);
            let failed: Vec<&str> = failed.map(|(name, _)| *name).collect();
            if !ended.success() || !failed.is_empty() {
                bail!(
                    "tests of {package} fail though nothing is broken: {}; look at `cargo test \
                     --package {package}` ({ended})",
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
        let file = self.scratch.read(row.path());
        let prepared = file.and_then(|file| Ok((row.apply(&file)?, file)));
        let ((broken, file), target) = match (prepared, target(row, tests, self.subject)) {
            (Ok(files), Ok(target)) => (files, target),
            (Err(error), _) | (_, Err(error)) => return Ok(Outcome::Wrong(format!("{error:#}"))),
        };
        self.scratch.write(row.path(), &broken)?;
        let outcome = self.run_row(row, target);
        self.scratch.write(row.path(), &file)?;
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
            let package = self.subject.facts().package;
            bail!("cargo built no test program `{name}` of {package}");
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
            .args(["test", "--no-run", "--locked", "--package"])
            .arg(self.subject.facts().package)
            .args(targets)
            .envs(CHEAP.iter().copied())
            .env("CARGO_TARGET_DIR", &self.scratch.target);
        if again {
            // All dependencies were downloaded for the unbroken code.
            command.args(["--offline", "--quiet"]);
        }
        let built = nested::run_in(&self.scratch.clone, &mut command)?;
        let of_package = |binary: &Binary| binary.package == self.subject.facts().package;
        let tests =
            |binary: &Binary| of_package(binary) && matches!(binary.kind.as_str(), "lib" | "test");
        Ok(built.into_iter().filter(tests).collect())
    }

    /// The output of a test program, and its exit.
    fn test(&self, binary: &Binary, words: &[&str]) -> Result<(String, std::process::ExitStatus)> {
        let limit = self.subject.facts().processor_seconds * cache::slowness()?;
        let mut command = process::limited(&binary.path, limit, MEMORY)?;
        command
            .args(words)
            .envs(PROPTEST.iter().copied())
            .envs(self.subject.facts().environment.iter().copied())
            .current_dir(self.scratch.clone.join(self.subject.facts().folder))
            .stderr(Stdio::null());
        let output = process::finish(&mut command)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok((text, output.status))
    }
}

/// The target of a row's test.
fn target<'a>(row: &Row, tests: &'a Tests, subject: Subject) -> Result<&'a (String, String)> {
    let package = subject.facts().package;
    tests.get(&row.fails).with_context(|| {
        format!(
            "{package} has no test `{}`; `cargo test --package {package} -- --list` names them all",
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

    fn row(name: &str, file: &str, fails: &str) -> Row {
        let text = format!("[{{name: {name}, file: {file}, find: x, replace: y, fails: {fails}}}]");
        let sources = Subject::Planner.facts().sources;
        table::parse(&text, sources).unwrap().remove(0)
    }

    #[test]
    fn a_row_whose_test_is_not_known_is_wrong_and_a_known_one_is_found_in_its_target() {
        let of_tests = ("test".to_owned(), "planner".to_owned());
        let tests = Tests::from([("cases::nodes".to_owned(), of_tests.clone())]);
        let found = |test| {
            let found = target(&row("a", "a.rs", test), &tests, Subject::Planner);
            found.cloned().map_err(|error| error.to_string())
        };
        assert_eq!(found("cases::nodes"), Ok(of_tests));
        // libtest would take it for a filter without matches, and report success.
        let error = found("nodes").unwrap_err();
        assert!(error.contains("has no test `nodes`"), "{error}");
    }

    #[test]
    fn the_short_form_has_a_row_of_each_file_and_what_was_not_seen() {
        let rows = [("one", "a"), ("two", "a"), ("three", "a"), ("four", "b")];
        let rows = rows.map(|(name, file)| row(name, &format!("{file}.rs"), "t"));
        let rows = rows.to_vec();
        let names = |rows: Vec<Row>| rows.into_iter().map(|row| row.name).collect::<Vec<_>>();
        assert_eq!(names(short_form(rows.clone(), |_| true)), ["one", "four"]);
        assert_eq!(
            names(short_form(rows, |row| row.name != "three")),
            ["one", "three", "four"]
        );
    }

    #[test]
    fn survivors_and_wrong_rows_are_reported_and_counted_as_failed() {
        let rows = ["one", "two", "three"].map(|name| row(name, "a.rs", "t"));
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
