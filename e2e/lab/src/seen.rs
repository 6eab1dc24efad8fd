//! The names of tests and checks that ran, parsed from the output of their programs.
//!
//! Names are those of `e2e/semantics.yaml`, without the tier. Incomplete results are ignored: of a scenario, only
//! checks before its closing line count.

use std::collections::BTreeSet;

use crate::libtest::{self, Verdict};

/// The results of a tier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Passed.
    pub passed: BTreeSet<String>,
    /// Failed. For a check with the reason, since the end of the name is not visible in the output.
    pub failed: BTreeSet<String>,
    /// The test program of the following lines.
    program: Option<String>,
    /// Checks since the last closing line: whether each passed, and its text.
    checks: Vec<(bool, String)>,
}

impl Seen {
    /// Starts the output of another test program: `PACKAGE::PROGRAM`, or `doc` for examples.
    pub fn program(&mut self, name: &str) {
        self.program = Some(name.to_owned());
    }

    /// The line without colours and surrounding blanks. Returns the closing line of a scenario.
    pub fn line(&mut self, text: &str) -> Option<Closing> {
        if let Some((name, passed)) = test(text) {
            if let Some(program) = &self.program {
                let name = format!("{program}::{name}");
                self.put(name, passed);
            }
        } else if let Some(check) = text.strip_prefix("ok ") {
            self.checks.push((true, check.trim_start().to_owned()));
        } else if let Some(check) = text.strip_prefix("FAILED ") {
            self.checks.push((false, check.trim_start().to_owned()));
        } else if let Some(closing) = Closing::parse(text) {
            let passed = closing.passed > 0 && closing.failed == 0;
            self.close(&closing.scenario, passed);
            return Some(closing);
        }
        None
    }

    /// Ends a scenario: the checks since the last one belong to it.
    pub fn close(&mut self, scenario: &str, passed: bool) {
        for (passed, check) in std::mem::take(&mut self.checks) {
            self.put(format!("{scenario}::{check}"), passed);
        }
        self.put(scenario.to_owned(), passed);
    }

    /// Whether this name failed at least once.
    #[must_use]
    pub fn has_failed(&self, name: &str) -> bool {
        let why = |rest: &str| rest.is_empty() || rest.starts_with(": ");
        self.failed
            .iter()
            .any(|failed| failed.strip_prefix(name).is_some_and(why))
    }

    /// Adds the results of another part of the same tier.
    pub fn add(&mut self, other: Self) {
        self.passed.extend(other.passed);
        self.failed.extend(other.failed);
    }

    fn put(&mut self, name: String, passed: bool) {
        match passed {
            true => self.passed.insert(name),
            false => self.failed.insert(name),
        };
    }
}

/// The result in a line, unless the test was ignored. Examples are named by line numbers, which change, so they are
/// omitted.
fn test(line: &str) -> Option<(&str, bool)> {
    let (name, verdict) = libtest::verdict(line)?;
    let name = name.split(" (line ").next()?;
    match verdict {
        Verdict::Passed => Some((name, true)),
        Verdict::Failed => Some((name, false)),
        Verdict::NotRun => None,
    }
}

/// The closing line of a scenario: `NAME: 9 passed, 0 failed in 3.1 s, cpu 1.2 s`.
#[derive(Debug, Clone, PartialEq)]
pub struct Closing {
    /// Its name.
    pub scenario: String,
    /// Checks that passed.
    pub passed: u64,
    /// Failed checks.
    pub failed: u64,
    /// Duration, seconds.
    pub seconds: f64,
    /// Processor time, seconds.
    pub cpu: f64,
}

impl Closing {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (name, rest) = line.split_once(": ")?;
        let (passed, rest) = rest.split_once(" passed, ")?;
        let (failed, rest) = rest.split_once(" failed in ")?;
        let (seconds, rest) = rest.split_once(" s, cpu ")?;
        Some(Self {
            scenario: name.to_owned(),
            passed: passed.parse().ok()?,
            failed: failed.parse().ok()?,
            seconds: seconds.parse().ok()?,
            cpu: rest.strip_suffix(" s")?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(lines: &str) -> Seen {
        let mut seen = Seen::default();
        lines.lines().for_each(|line| drop(seen.line(line)));
        seen
    }

    fn names(list: &BTreeSet<String>) -> Vec<&str> {
        list.iter().map(String::as_str).collect()
    }

    #[test]
    fn tests_are_named_after_their_program() {
        let mut seen = seen("test orphaned ... ok");
        assert_eq!(seen, Seen::default(), "no program has begun");
        seen.program("portolan-planner::planner");
        for line in [
            "running 4 tests",
            "test cases::topology_hints ... ok",
            "test laws::order ... FAILED",
            "test laws::slow has been running for over 60 seconds",
            "test laws::never ... ignored, takes a day",
            "test laws::refuses - should panic ... ok",
        ] {
            seen.line(line);
        }
        seen.program("doc");
        seen.line("test proto/plan/src/key.rs - key::ListKey (line 12) ... ok");
        seen.line("test proto/plan/src/key.rs - key::HeadKey (line 40) - compile ... ok");
        assert_eq!(
            names(&seen.passed),
            [
                "doc::proto/plan/src/key.rs - key::HeadKey",
                "doc::proto/plan/src/key.rs - key::ListKey",
                "portolan-planner::planner::cases::topology_hints",
                "portolan-planner::planner::laws::refuses",
            ]
        );
        assert_eq!(
            names(&seen.failed),
            ["portolan-planner::planner::laws::order"]
        );
    }

    #[test]
    fn checks_belong_to_the_scenario_that_closes_after_them() {
        let seen = seen(
            "== stores: watches on two stores\n\
             ok     etcd 3.6: after a restart\n\
             FAILED etcd 3.4: after a stall: plans differ: node-1\n\
             stores: 1 passed, 1 failed in 3.1 s, cpu 1.0 s\n\
             ok     all is well\n\
             churn: 1 passed, 0 failed in 120.0 s, cpu 2.0 s\n\
             idle: 0 passed, 0 failed in 0.0 s, cpu 0.0 s\n\
             ok     cut off",
        );
        assert_eq!(
            names(&seen.passed),
            [
                "churn",
                "churn::all is well",
                "stores::etcd 3.6: after a restart"
            ]
        );
        for name in ["stores", "idle", "stores::etcd 3.4: after a stall"] {
            assert!(seen.has_failed(name), "{name}");
        }
        assert!(!seen.has_failed("stores::etcd 3.4: after a st"));
        assert!(!seen.has_failed("churn"));
    }

    #[test]
    fn what_passed_on_one_network_and_failed_on_the_other_has_failed() {
        let seen = seen(
            "ok     same\nFAILED same: it differs\nboth: 1 passed, 1 failed in 1.0 s, cpu 1.0 s",
        );
        assert!(seen.passed.contains("both::same") && seen.has_failed("both::same"));
    }

    #[test]
    fn lines_that_only_look_alike_are_nothing() {
        let mut seen = Seen::default();
        seen.program("a::b");
        for line in [
            "test x ... maybe",
            "tests ... ok",
            "okay then",
            "9 passed, 0 failed in 3.1 s, cpu 1.0 s",
            "x: 9 passed, 0 failed in 3.1 s",
            "x: y passed, 0 failed in 3 s, cpu 1 s",
        ] {
            seen.line(line);
        }
        assert_eq!((seen.passed.len(), seen.failed.len()), (0, 0));
        assert!(seen.checks.is_empty());
    }
}
