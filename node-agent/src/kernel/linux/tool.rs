//! The only file of the agent that starts programs: the tools of iptables, a few times in its life,
//! `modprobe` before it, and `nft` for whoever asks what is wrong.

use std::fmt::Display;
use std::io::Write as _;
use std::process::{Child, Command, Output, Stdio};

use crate::kernel::KernelError;

/// A tool at work. Whoever starts one has to let it finish.
#[derive(Debug)]
#[must_use = "a tool that nobody waits for stays in the list of processes"]
pub(super) struct Running {
    program: String,
    child: Child,
}

/// Runs a tool to its end, with text on its standard input.
///
/// # Errors
/// What it says, or that it is not there and which package has it.
pub(super) fn run(
    program: &str,
    arguments: &[&str],
    input: Option<&str>,
) -> Result<Output, KernelError> {
    start(program, arguments, input)?.finish()
}

/// Starts a tool and gives it a text on its standard input.
///
/// # Errors
/// It is not there, and which package has it.
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
    // The text is far smaller than what the tool reads before it writes anything, so writing all
    // of it first cannot block both sides. A tool that ends early is judged by its exit status.
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
            // What it makes of half a text is not asked.
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
    /// What it says.
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

/// Debian's name of the package that has a tool.
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

/// What a tool said, without remarks, and without what it says every second while it waits.
fn words(said: &str) -> String {
    let waits = |line: &str| line.contains("xtables lock; still");
    let lines: Vec<_> = said
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .collect();
    let last = lines.last().copied().unwrap_or_default();
    let mut told: Vec<_> = lines.into_iter().filter(|line| !waits(line)).collect();
    if told.is_empty() {
        told.push(last);
    }
    told.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tool_says_while_it_waits_is_told_once() {
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
