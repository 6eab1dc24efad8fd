//! What a person sees while something long runs: a spinner on a terminal, plain lines elsewhere.
//!
//! All of it goes to standard error, so that standard output belongs to the command that was asked
//! for.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// One long piece of work. Dropped without [`Step::done`], it just disappears.
pub struct Step {
    title: String,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl Step {
    /// Shows that the work began.
    #[must_use]
    pub fn start(title: &str) -> Self {
        let bar = on_terminal().then(|| spinner(title));
        if bar.is_none() {
            say(&format!("{title} …"));
        }
        Self { title: title.to_owned(), started: Instant::now(), bar }
    }

    /// Says what is being done at the moment.
    pub fn detail(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(format!("{}: {text}", self.title)),
            None => say(&format!("{}: {text}", self.title)),
        }
    }

    /// Ends with a line that says what came out, and the seconds.
    pub fn done(self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        say(&format!("{}: {text} ({})", self.title, seconds(self.started.elapsed())));
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

/// A duration as people read it.
#[must_use]
pub fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// Whether somebody watches: bars are for people only.
#[must_use]
pub fn on_terminal() -> bool {
    std::io::stderr().is_terminal() && !in_ci()
}

/// Whether this is an unattended run.
#[must_use]
pub fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

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
    fn durations_are_shown_with_one_decimal() {
        assert_eq!(seconds(Duration::from_millis(1_260)), "1.3 s");
        assert_eq!(seconds(Duration::from_secs(75)), "75.0 s");
    }
}
