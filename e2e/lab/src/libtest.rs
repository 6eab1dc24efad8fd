//! Parses the output of a Rust test program, line by line. Touches nothing.

use std::collections::BTreeMap;

/// The verdict of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// `ok`
    Passed,
    /// `FAILED`
    Failed,
    /// `ignored`, or no verdict: the program ended before.
    NotRun,
}

/// The verdicts in an output, by the test's name. The output of a failed test follows later, so the first line with a
/// name counts.
pub(crate) fn verdicts(output: &str) -> BTreeMap<&str, Verdict> {
    let mut found = BTreeMap::new();
    for (name, verdict) in output.lines().filter_map(verdict) {
        found.entry(name).or_insert(verdict);
    }
    found
}

/// The verdict in a line, and the name of the test.
pub(crate) fn verdict(line: &str) -> Option<(&str, Verdict)> {
    let (name, word) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    let verdict = match word.trim_end() {
        "ok" => Verdict::Passed,
        "FAILED" => Verdict::Failed,
        _ => Verdict::NotRun,
    };
    Some((name, verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_read_as_libtest_prints_them() {
        let output = "\nrunning 5 tests\n\
            test cases::topology_hints ... FAILED\n\
            test laws::of_everything ... ok\n\
            test laws::that_panics - should panic ... ok\n\
            test laws::later ... ignored, takes long\n\
            \n\
            failures:\n\
            \n\
            ---- cases::topology_hints stdout ----\n\
            test cases::topology_hints ... ok\n\
            \n\
            test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out\n";
        let expected = BTreeMap::from([
            ("cases::topology_hints", Verdict::Failed),
            ("laws::of_everything", Verdict::Passed),
            ("laws::that_panics", Verdict::Passed),
            ("laws::later", Verdict::NotRun),
        ]);
        assert_eq!(verdicts(output), expected);
    }

    #[test]
    fn a_program_that_ended_early_leaves_a_test_without_a_verdict() {
        let output = "running 1 test\ntest cases::frontends ... ";
        assert_eq!(verdicts(output)["cases::frontends"], Verdict::NotRun);
        assert!(verdicts("running 1 test\n").is_empty());
    }
}
