//! Progress of long tasks: a spinner on a terminal, plain lines elsewhere.
//!
//! Uses standard error, since standard output belongs to the command.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant, SystemTime};

use indicatif::{ProgressBar, ProgressStyle};

use crate::process;

/// A long task. Dropped without [`Step::done`], it just disappears.
pub struct Step {
    title: String,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl Step {
    /// Shows that the task has started.
    #[must_use]
    pub fn start(title: &str) -> Self {
        let bar = on_terminal().then(|| spinner(title));
        if bar.is_none() {
            say(&format!("{title} …"));
        }
        Self {
            title: title.to_owned(),
            started: Instant::now(),
            bar,
        }
    }

    /// Shows the current step.
    pub fn detail(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(format!("{}: {text}", self.title)),
            None => say(&format!("{}: {text}", self.title)),
        }
    }

    /// Finishes with a line that has the result and the duration.
    pub fn done(self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        say(&format!(
            "{}: {text} ({})",
            self.title,
            seconds(self.started.elapsed())
        ));
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Writes one line to standard error.
pub fn say(line: &str) {
    // A closed standard error is no reason to stop.
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}

/// Writes one line to standard output.
///
/// # Errors
/// Standard output is closed.
pub fn print(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// A duration in readable form.
#[must_use]
pub fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// Seconds since 1970: the default of seeds, and the time of results.
#[must_use]
pub fn unix_time() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed();
    since.unwrap_or_default().as_secs()
}

/// Whether a person watches: bars are for people only.
#[must_use]
pub fn on_terminal() -> bool {
    std::io::stderr().is_terminal() && !in_ci()
}

/// Whether this is an unattended run.
#[must_use]
pub fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

/// Variables about this program's terminal, for programs without one.
#[must_use]
pub fn for_programs() -> Vec<(String, String)> {
    let coloured = std::io::stdout().is_terminal() && !in_ci();
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colour = if coloured && !plain {
        ("COLOR", "1")
    } else {
        ("NO_COLOR", "1")
    };
    let mut all = vec![(colour.0.to_owned(), colour.1.to_owned())];
    if let Some(width) = terminal_width() {
        all.push(("COLUMNS".to_owned(), width));
    }
    let ours = |name: &str| name.starts_with("PORTOLAN_") || PASSED_ON.contains(&name);
    // Names and values that are not UTF-8 are not the lab's.
    let texts = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    all.extend(texts.filter(|(name, _)| ours(name)));
    all
}

/// Columns of the terminal at standard output; `None` if it is not a terminal.
fn terminal_width() -> Option<String> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let mut stty = process::program("stty").ok()?;
    let size = process::output(stty.args(["-F", "/dev/tty", "size"]));
    width_of(&size.ok()?)
}

/// `stty size` prints rows and columns; 0 if unknown.
fn width_of(size: &str) -> Option<String> {
    let columns: u16 = size.split_whitespace().nth(1)?.parse().ok()?;
    (columns > 0).then(|| columns.to_string())
}

/// Settings by the user of the lab for the programs that it starts.
const PASSED_ON: &[&str] = &["CI", "RUST_BACKTRACE", "RUST_LOG"];

fn spinner(title: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(title.to_owned());
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_width_is_the_second_number_and_0_is_none() {
        assert_eq!(width_of("24 80\n").as_deref(), Some("80"));
        assert_eq!(width_of("0 0\n"), None);
        assert_eq!(width_of(""), None);
    }

    #[test]
    fn durations_are_shown_with_one_decimal() {
        assert_eq!(seconds(Duration::from_millis(1_260)), "1.3 s");
        assert_eq!(seconds(Duration::from_secs(75)), "75.0 s");
    }
}
