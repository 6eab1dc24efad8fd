//! The results of targets, parsed from the output of libFuzzer.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

/// The result of a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    /// Its name.
    target: String,
    /// The number of processed inputs.
    inputs: u64,
    seconds: u64,
    /// The number of covered edges of the program.
    coverage: u64,
    /// The number of inputs that were added because they cover more.
    added: u64,
    /// The file with the input of a finding, or the last lines of the output.
    pub(super) finding: Option<String>,
}

impl Row {
    /// Parses the output of a run.
    ///
    /// # Errors
    /// The program ran without coverage guidance, or printed no statistics.
    pub(super) fn parse(target: &str, seconds: u64, success: bool, output: &str) -> Result<Self> {
        ensure!(
            output.contains("inline 8-bit counters"),
            "{target} ran without coverage guidance; its output was:\n{}",
            last_lines(output)
        );
        let finding = (!success).then(|| finding(output));
        let inputs = statistic(output, "stat::number_of_executed_units:");
        // After a finding, libFuzzer may print none.
        let inputs = match &finding {
            Some(_) => inputs.unwrap_or_default(),
            None => inputs.with_context(|| format!("{target} printed no statistics"))?,
        };
        let covered = output.lines().rev().find_map(|line| {
            let (_, rest) = line.split_once(" cov: ")?;
            rest.split_whitespace().next()?.parse().ok()
        });
        Ok(Self {
            target: target.to_owned(),
            inputs,
            seconds,
            coverage: covered.unwrap_or_default(),
            added: statistic(output, "stat::new_units_added:").unwrap_or_default(),
            finding,
        })
    }
}

fn statistic(output: &str, name: &str) -> Option<u64> {
    let line = output.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().parse().ok()
}

fn finding(output: &str) -> String {
    let mut lines = output.lines();
    let written = lines.find_map(|line| line.split_once("Test unit written to "));
    written.map_or_else(|| last_lines(output), |(_, path)| path.trim().to_owned())
}

fn last_lines(output: &str) -> String {
    crate::process::last_lines(output.as_bytes(), 8)
}

/// A table for people, and the closing line.
pub(super) fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<20} {:>12} {:>8} {:>9} {:>7} FINDING\n",
        "TARGET", "INPUTS", "SECONDS", "COVERAGE", "ADDED"
    );
    for row in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<20} {:>12} {:>8} {:>9} {:>7} {}",
            row.target,
            row.inputs,
            row.seconds,
            row.coverage,
            row.added,
            row.finding.as_deref().unwrap_or("-")
        );
    }
    let failed = rows.iter().filter(|row| row.finding.is_some()).count();
    let _ = writeln!(text, "{} passed, {failed} failed", rows.len() - failed);
    text
}

/// The same for programs.
pub(super) fn json(rows: &[Row]) -> Result<String> {
    let text = serde_json::to_string_pretty(rows).context("writing JSON")?;
    Ok(text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "INFO: Loaded 1 modules   (90 inline 8-bit counters): 90\n\
        #2\tINITED cov: 12 ft: 13 corp: 1/1b exec/s: 0 rss: 40Mb\n\
        #1000\tDONE   cov: 57 ft: 80 corp: 9/99b lim: 64 exec/s: 500 rss: 41Mb\n\
        stat::number_of_executed_units: 1000\n\
        stat::average_exec_per_sec:     500\n\
        stat::new_units_added:          8\n";

    #[test]
    fn a_run_without_a_finding_is_read_from_its_statistics() {
        let row = Row::parse("manifests", 2, true, OUTPUT).unwrap();
        assert_eq!((row.inputs, row.coverage, row.added), (1000, 57, 8));
        assert_eq!(row.finding, None);
        let text = table(&[row]);
        assert!(text.ends_with("1 passed, 0 failed\n"), "{text}");
    }

    #[test]
    fn a_finding_is_the_file_with_its_input() {
        let output = format!("{OUTPUT}artifact_prefix='/x/'; Test unit written to /x/crash-1\n");
        let row = Row::parse("manifests", 2, false, &output).unwrap();
        assert_eq!(row.finding.as_deref(), Some("/x/crash-1"));
        let text = json(&[row]).unwrap();
        assert!(text.contains("\"finding\": \"/x/crash-1\""), "{text}");
    }

    #[test]
    fn a_run_without_coverage_guidance_is_refused() {
        let error = Row::parse("manifests", 2, true, "INFO: no counters").unwrap_err();
        assert!(error.to_string().contains("coverage"), "{error}");
    }
}
