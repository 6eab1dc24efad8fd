//! The last lines of the programs' logs, attached to an error once.

use std::fmt;

/// An error with the last lines of the programs' logs in its text.
#[derive(Debug)]
struct WithLogs(String);

impl fmt::Display for WithLogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WithLogs {}

/// Attaches logs to an error; returns it unchanged if it has logs already.
pub(crate) fn attach(error: anyhow::Error, logs: impl FnOnce() -> String) -> anyhow::Error {
    if error.is::<WithLogs>() {
        return error;
    }
    WithLogs(format!("{error:#}{}", logs())).into()
}

/// The last lines of a program's log, each on a line of its own behind the program's name.
pub(crate) fn tail(name: &str, log: &str, count: usize) -> String {
    let lines: Vec<_> = log.lines().collect();
    let last = &lines[lines.len().saturating_sub(count)..];
    last.iter()
        .map(|line| format!("\n  {name}: {line}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};

    use super::*;

    #[test]
    fn logs_are_attached_once_even_if_context_was_added_in_between() {
        let error = attach(anyhow!("lost"), || tail("agent", "one\ntwo\nthree", 2));
        assert_eq!(format!("{error:#}"), "lost\n  agent: two\n  agent: three");
        let error = Err::<(), _>(error).context("part").unwrap_err();
        let again = attach(error, || "again".to_owned());
        assert_eq!(
            format!("{again:#}"),
            "part: lost\n  agent: two\n  agent: three"
        );
    }
}
