//! Checks of scenarios and demos: each is printed as it is decided, and counted.

use std::fmt;

use anyhow::Result;

use crate::console::Console;

/// Counts checks and prints each as it is decided.
#[derive(Debug)]
pub struct Checks {
    console: Console,
    passed: usize,
    failed: usize,
}

impl Checks {
    /// None yet.
    #[must_use]
    pub fn new(console: Console) -> Self {
        Self {
            console,
            passed: 0,
            failed: 0,
        }
    }

    /// A check that passed.
    pub fn passed(&mut self, what: &str) {
        self.passed += 1;
        self.console.verdict(true, what);
    }

    /// A check that did not, and why.
    pub fn failed(&mut self, what: &str, why: &str) {
        self.failed += 1;
        self.console.verdict(false, &format!("{what}: {why}"));
    }

    /// A check decided by a result; an error fails it and nothing else.
    pub fn check(&mut self, what: &str, result: Result<()>) {
        match result {
            Ok(()) => self.passed(what),
            Err(error) => self.failed(what, &format!("{error:#}")),
        }
    }

    /// Records a check; `seen` is printed if it fails.
    pub fn require(&mut self, what: &str, holds: bool, seen: &str) {
        if holds {
            self.passed(what);
        } else {
            self.failed(what, seen);
        }
    }

    /// Like [`Checks::check`], but silent when it passes: it was shown in another form.
    pub fn check_quietly(&mut self, what: &str, result: Result<()>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(error) => self.failed(what, &format!("{error:#}")),
        }
    }

    /// Many checks that were printed in another form.
    pub fn count(&mut self, passed: usize, failed: usize) {
        self.passed += passed;
        self.failed += failed;
    }

    /// Adds those of a part.
    pub fn add(&mut self, part: &Self) {
        self.count(part.passed, part.failed);
    }

    /// Whether there were checks and none failed.
    #[must_use]
    pub fn all_passed(&self) -> bool {
        self.failed == 0 && self.passed > 0
    }
}

impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}
