//! `cargo lab kernels`: the same scenarios on kernels of other Debian releases.
//!
//! Each scenario has its own boot, so that a kernel that crashes in one scenario still runs the others.

use std::io::Write;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::builder::PossibleValuesParser;

use crate::closing::{Count, Counter};
use crate::progress::{print, say};
use crate::scenarios::{self, Mode, Place};

/// Kernels by the first two numbers of their version, with the Debian release that contains them as
/// `linux-image-cloud-amd64`.
const KERNELS: [(&str, &str); 4] = [
    ("5.10", "bullseye"),
    ("6.1", "bookworm"),
    ("6.12", "trixie"),
    ("7.3", "trixie-backports"),
];

/// The default scenarios.
const SCENARIOS: [&str; 6] = [
    "packet-path",
    "bare",
    "drift",
    "draining",
    "dataplanes",
    "listing",
];

/// The names of kernels.
pub(crate) fn known() -> PossibleValuesParser {
    PossibleValuesParser::new(KERNELS.map(|(version, _)| version))
}

/// The result of one scenario on one kernel.
struct Cell {
    count: Count,
    /// Why there is no count, or an incomplete one.
    error: Option<String>,
    seconds: u64,
}

impl Cell {
    fn passed(&self) -> bool {
        self.error.is_none() && self.count.failed == 0 && self.count.passed > 0
    }

    fn text(&self) -> String {
        let Count { passed, failed } = self.count;
        match (self.passed(), &self.error) {
            (true, _) => format!("{passed} passed, {} s", self.seconds),
            (false, None) if passed + failed == 0 => "**ran nothing**".to_owned(),
            (false, None) => format!("**{failed} of {} failed**", passed + failed),
            (false, Some(_)) => "**did not end**".to_owned(),
        }
    }
}

/// Runs the scenarios on these kernels, prints a table, and returns whether all passed.
///
/// # Errors
/// The output is closed. Failures of a kernel are reported in the table.
pub(crate) fn run(
    kernels: &[String],
    names: &[String],
    sink: &mut (dyn Write + Send),
) -> Result<bool> {
    let names: Vec<&str> = match names {
        [] => SCENARIOS.to_vec(),
        names => names.iter().map(String::as_str).collect(),
    };
    let is_chosen = |(version, _): &(&str, &str)| {
        kernels.is_empty() || kernels.iter().any(|name| name == version)
    };
    let mut rows = Vec::new();
    for (version, release) in KERNELS.into_iter().filter(is_chosen) {
        let mut cells = Vec::new();
        for name in &names {
            say(&format!("kernel {version} of Debian {release}: {name}"));
            cells.push(cell(release, name, sink)?);
        }
        rows.push((version, cells));
    }
    print(&table(&names, &rows))?;
    let mut all = rows.iter().flat_map(|(_, cells)| cells);
    for (version, cells) in &rows {
        for (name, cell) in names.iter().zip(cells) {
            if let Some(error) = &cell.error {
                print(&format!("kernel {version}, {name}: {error}"))?;
            }
        }
    }
    Ok(all.all(Cell::passed))
}

fn cell(release: &'static str, name: &str, sink: &mut (dyn Write + Send)) -> Result<Cell> {
    let started = Instant::now();
    let mut counter = Counter::new(sink);
    let mode = Mode {
        release: Some(release),
        ..Mode::default()
    };
    let ended = scenarios::run(&["run", name], Place::Guest, mode, &mut counter);
    counter.finish().context("write the scenario's output")?;
    let error = match ended {
        Ok(0) => None,
        Ok(_) if counter.count.failed > 0 => None,
        Ok(code) => {
            let error = counter.error.take();
            error.or_else(|| Some(format!("it ended with {code}")))
        }
        Err(error) => Some(format!("{error:#}")),
    };
    Ok(Cell {
        count: counter.count,
        error,
        seconds: started.elapsed().as_secs(),
    })
}

/// A Markdown table with a line for each kernel.
fn table(names: &[&str], rows: &[(&str, Vec<Cell>)]) -> String {
    let mut text = format!(
        "\n| kernel | {} |\n| --- |{}\n",
        names.join(" | "),
        " --- |".repeat(names.len())
    );
    for (version, cells) in rows {
        let cells: Vec<_> = cells.iter().map(Cell::text).collect();
        text += &format!("| {version} | {} |\n", cells.join(" | "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_on_which_nothing_ran_has_not_passed() {
        let cell = |passed, failed, error: Option<&str>| Cell {
            count: Count { passed, failed },
            error: error.map(str::to_owned),
            seconds: 7,
        };
        let cells = vec![
            cell(5, 0, None),
            cell(5, 2, None),
            cell(0, 0, None),
            cell(3, 0, Some("panic")),
        ];
        let passed: Vec<_> = cells.iter().map(Cell::passed).collect();
        assert_eq!(passed, [true, false, false, false]);
        let shown = table(&["a", "b", "c", "d"], &[("6.1", cells)]);
        let line =
            "| 6.1 | 5 passed, 7 s | **2 of 7 failed** | **ran nothing** | **did not end** |";
        assert_eq!(shown.lines().last(), Some(line));
    }
}
