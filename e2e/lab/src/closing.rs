//! Parses closing lines and test names from the output of test runners.

use std::io::{self, Write};
use std::ops::AddAssign;

use crate::seen::{Closing, Seen};

/// Prefix of output for the lab instead of people, up to the end of the line: an [`Aside`].
pub const ASIDE: char = '\u{1e}';

/// Prefix of the line with the ID of a demo's trace.
const TRACE: &str = "The trace: ";

/// A message of a lab program to the lab within its output.
#[derive(Debug, Clone, PartialEq)]
pub enum Aside {
    /// The name of the test program whose output follows.
    Program(String),
    /// Processor time of everything that ran, seconds.
    Cpu(f64),
    /// Why it did not finish.
    Error(String),
}

impl Aside {
    /// The line with this message, without a line break.
    #[must_use]
    pub fn line(&self) -> String {
        match self {
            Self::Program(name) => format!("{ASIDE}program {name}"),
            Self::Cpu(seconds) => format!("{ASIDE}cpu {seconds}"),
            Self::Error(text) => format!("{ASIDE}error {}", text.replace('\n', "; ")),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(' ')?;
        match kind {
            "program" => Some(Self::Program(rest.to_owned())),
            "cpu" => Some(Self::Cpu(rest.parse().ok()?)),
            "error" => Some(Self::Error(rest.to_owned())),
            _ => None,
        }
    }
}

/// Counts of tests or checks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// As expected.
    pub passed: u64,
    /// Not as expected.
    pub failed: u64,
}

impl Count {
    /// These numbers.
    #[must_use]
    pub const fn new(passed: u64, failed: u64) -> Self {
        Self { passed, failed }
    }

    /// How many ran.
    #[must_use]
    pub fn all(self) -> u64 {
        self.passed + self.failed
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// Passes on what is written, line by line, and sums up the closing lines in it.
#[derive(Default)]
pub struct Counter<W> {
    out: W,
    line: Vec<u8>,
    /// The text after [`ASIDE`] so far.
    aside: Option<Vec<u8>>,
    /// The sum so far.
    pub count: Count,
    /// The names so far.
    pub seen: Seen,
    /// The last non-empty line, without colours.
    pub last: String,
    /// Processor time reported by the program, seconds.
    pub cpu: f64,
    /// Why the program did not finish, if it reported that.
    pub error: Option<String>,
    /// The closing line of the last scenario, until it is taken.
    pub closed: Option<Closing>,
    /// The ID of a demo's trace.
    pub trace: Option<String>,
}

impl<W: Write> Counter<W> {
    /// Empty counts.
    pub fn new(out: W) -> Self {
        Self {
            out,
            line: Vec::new(),
            aside: None,
            count: Count::default(),
            seen: Seen::default(),
            last: String::new(),
            cpu: 0.0,
            error: None,
            closed: None,
            trace: None,
        }
    }

    /// The output without messages for the lab.
    #[must_use]
    pub fn into_output(self) -> W {
        self.out
    }

    /// Ends the last line.
    ///
    /// # Errors
    /// The output is closed.
    pub fn finish(&mut self) -> io::Result<()> {
        if !self.line.is_empty() {
            self.write_all(b"\n")?;
        }
        self.out.flush()
    }

    fn end_of_line(&mut self) {
        let text = plain(&String::from_utf8_lossy(&self.line));
        self.line.clear();
        if let Some(count) = parse(&text) {
            self.count += count;
        }
        if let Some(closing) = self.seen.line(&text) {
            self.closed = Some(closing);
        }
        if let Some(trace) = text.strip_prefix(TRACE) {
            self.trace = Some(trace.to_owned());
        }
        if !text.is_empty() {
            self.last = text;
        }
    }
}

impl<W: Write> Write for Counter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut shown = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            match (&mut self.aside, byte) {
                (Some(aside), b'\n') => {
                    match Aside::parse(&String::from_utf8_lossy(aside)) {
                        Some(Aside::Program(name)) => self.seen.program(&name),
                        Some(Aside::Cpu(seconds)) => self.cpu = seconds,
                        Some(Aside::Error(text)) => self.error = Some(text),
                        None => {}
                    }
                    self.aside = None;
                }
                (Some(aside), _) => aside.push(byte),
                (None, _) if char::from(byte) == ASIDE => self.aside = Some(Vec::new()),
                (None, _) => {
                    shown.push(byte);
                    match byte {
                        b'\n' => self.end_of_line(),
                        _ => self.line.push(byte),
                    }
                }
            }
        }
        self.out.write_all(&shown)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A closing line: `test result: ok. 12 passed; 0 failed; …` or `12 passed, 0 failed` alone. An ignored or skipped
/// test has proved nothing, so it counts as failed.
fn parse(line: &str) -> Option<Count> {
    if let Some(rest) = line.strip_prefix("test result: ") {
        let (_, counts) = rest.split_once(". ")?;
        let mut parts = counts.split("; ");
        let (passed, failed) = (parts.next()?, parts.next()?);
        return count(passed, failed, number(parts.next()?, " ignored")?);
    }
    let mut parts = line.split(", ");
    let (passed, failed) = (parts.next()?, parts.next()?);
    let skipped = parts
        .next()
        .map_or(Some(0), |text| number(text, " skipped"));
    count(passed, failed, skipped?)
}

fn count(passed: &str, failed: &str, not_run: u64) -> Option<Count> {
    let failed = number(failed, " failed")?;
    Some(Count::new(number(passed, " passed")?, failed + not_run))
}

fn number(text: &str, word: &str) -> Option<u64> {
    text.strip_suffix(word)?.parse().ok()
}

/// The line without colours and surrounding blanks.
fn plain(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        text.push_str(before);
        let end = after
            .find(|sign: char| sign.is_ascii_alphabetic())
            .map_or(after.len(), |at| at + 1);
        rest = &after[end..];
    }
    text.push_str(rest);
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(text: &str) -> Counter<Vec<u8>> {
        let mut counter = Counter::new(Vec::new());
        // In small pieces, as pipes deliver it.
        for piece in text.as_bytes().chunks(7) {
            counter.write_all(piece).unwrap();
        }
        counter.finish().unwrap();
        counter
    }

    #[test]
    fn closing_lines_of_both_kinds_are_added_up_and_all_is_passed_on() {
        let text = "running 2 tests\n\
            test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
            test result: FAILED. 3 passed; 2 failed; 0 ignored\n\
            scenario: 9 passed, 0 failed in 3.1 s\n\
            \u{1b}[32m4 passed, 1 failed\u{1b}[0m\n";
        let counter = counted(text);
        assert_eq!(counter.count, Count::new(19, 3));
        assert_eq!(counter.last, "4 passed, 1 failed");
        assert_eq!(counter.out, text.as_bytes());
    }

    #[test]
    fn the_name_of_a_program_is_for_the_lab_alone() {
        let counter = counted(
            "cut off\u{1e}program portolan-plan::laws\n\nrunning 1 test\ntest holds ... ok\n\
             \u{1e}program a::b\ntest too ... ok\n\u{1e}cpu 2.5\n\u{1e}error no guest\n",
        );
        assert_eq!(
            (counter.cpu, counter.error.as_deref()),
            (2.5, Some("no guest"))
        );
        let shown = "cut off\nrunning 1 test\ntest holds ... ok\ntest too ... ok\n";
        assert_eq!(String::from_utf8(counter.out).unwrap(), shown);
        let names: Vec<_> = counter.seen.passed.into_iter().collect();
        assert_eq!(names, ["a::b::too", "portolan-plan::laws::holds"]);
    }

    #[test]
    fn the_trace_is_found_in_what_is_passed_on() {
        // As received from a guest: with CRLF, and split anywhere.
        let text = "0.1 ms change\r\nThe trace: 7a01\r\nok    The trace: no\n";
        let counter = counted(text);
        assert_eq!(counter.trace.as_deref(), Some("7a01"));
        assert_eq!(counter.out, text.as_bytes());
    }

    #[test]
    fn a_last_line_without_an_end_counts_too() {
        let counter = counted("\r\n5 passed, 1 failed");
        assert_eq!(counter.count, Count::new(5, 1));
    }

    #[test]
    fn a_test_that_did_not_run_has_failed() {
        for line in [
            "5 passed, 0 failed, 2 skipped",
            "test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out",
        ] {
            assert_eq!(parse(line), Some(Count::new(5, 2)), "{line}");
        }
    }

    #[test]
    fn lines_that_only_look_alike_do_not_count() {
        for line in [
            "5 passed",
            "5 passed, 0 failed, and more",
            "x 5 passed, 0 failed",
            "test result: ok",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
