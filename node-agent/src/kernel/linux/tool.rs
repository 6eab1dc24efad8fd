//! The only file of the agent that starts programs: the iptables tools, a few times, `modprobe` in `init`, and
//! `nft` in `doctor`.

use std::fmt::Display;
use std::io::Write as _;
use std::process::{Child, Command, Output, Stdio};

use crate::kernel::KernelError;

/// A running tool. The caller has to wait for its end.
#[derive(Debug)]
#[must_use = "without a wait, the tool becomes a zombie process"]
pub(super) struct Running {
    program: String,
    child: Child,
}

/// Runs a tool to its end, with text on its standard input.
///
/// # Errors
/// The message of the tool, or that it is not installed, with its package.
pub(super) fn run(
    program: &str,
    arguments: &[&str],
    input: Option<&str>,
) -> Result<Output, KernelError> {
    start(program, arguments, input)?.finish()
}

/// Starts a tool, with text on its standard input.
///
/// # Errors
/// If the tool is not installed, with its package.
pub(super) fn start(
    program: &str,
    arguments: &[&str],
    input: Option<&str>,
) -> Result<Running, KernelError> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            failed(
                program,
                &format_args!("{error}; install the package {}", package(program)),
            )
        })?;
    // The tools read all input before they write much, so writing everything first cannot deadlock. For a tool that
    // ends early, the exit status counts.
    let written = match (input, child.stdin.take()) {
        (Some(text), Some(mut stdin)) => stdin.write_all(text.as_bytes()),
        _ => Ok(()),
    };
    let running = Running {
        program: program.into(),
        child,
    };
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            // The result for a partial text is of no interest.
            drop(running.finish());
            Err(failed(program, &error))
        }
        _ => Ok(running),
    }
}

impl Running {
    /// Waits for its end.
    ///
    /// # Errors
    /// The exit status and message of the tool.
    pub(super) fn finish(self) -> Result<Output, KernelError> {
        let Self { program, child } = self;
        let output = child
            .wait_with_output()
            .map_err(|error| failed(&program, &error))?;
        if output.status.success() {
            return Ok(output);
        }
        let said = words(&String::from_utf8_lossy(&output.stderr));
        Err(failed(&program, &format_args!("{}: {said}", output.status)))
    }
}

/// The Debian package of a tool.
fn package(program: &str) -> &'static str {
    match program {
        "modprobe" => "kmod",
        "nft" => "nftables",
        _ => "iptables",
    }
}

fn failed(program: &str, reason: &dyn Display) -> KernelError {
    KernelError::new(&format_args!("run {program}"), &format_args!("{reason}"))
}

/// The error output of a tool, without comments and without the lines that it prints every second while waiting.
fn words(said: &str) -> String {
    let waits = |line: &str| line.contains("xtables lock; still");
    let lines: Vec<_> = said
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .collect();
    let last = lines.last().copied().unwrap_or_default();
    let mut kept: Vec<_> = lines.into_iter().filter(|line| !waits(line)).collect();
    if kept.is_empty() {
        kept.push(last);
    }
    kept.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_lines_of_a_waiting_tool_are_reported_once() {
        let waits = "Another app is currently holding the xtables lock; still 1s 0us time ahead to have \
                     a chance to grab the lock...";
        let said = format!("{waits}\n{waits}\n");
        assert_eq!(words(&said), waits);
        let gives_up =
            "Another app is currently holding the xtables lock. Stopped waiting after 5s.";
        assert_eq!(words(&format!("{said}{gives_up}\n")), gives_up);
        assert_eq!(words("# a remark\n\none\ntwo\n"), "one; two");
        assert_eq!(words(""), "");
    }
}
