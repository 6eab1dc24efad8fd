//! The only file of the agent that starts programs: the tools of iptables, a few times in its life.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use crate::kernel::KernelError;

/// Runs a tool to its end, with text on its standard input.
///
/// # Errors
/// What it says, or that it is not there and which package has it.
pub(super) fn run(
    program: &str,
    arguments: &[&str],
    input: Option<&str>,
) -> Result<Output, KernelError> {
    let failed = |reason: String| KernelError::new(&format_args!("run {program}"), &reason);
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
        .map_err(|error| failed(format!("{error}; install the package iptables")))?;
    // The text is far smaller than what the tool reads before it writes anything, so writing all
    // of it first cannot block both sides. A tool that ends early is judged by its exit status.
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take())
        && let Err(error) = stdin.write_all(text.as_bytes())
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        return Err(failed(error.to_string()));
    }
    let output = child
        .wait_with_output()
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect::<Vec<_>>()
        .join("; ");
    Err(failed(format!("{}: {said}", output.status)))
}
