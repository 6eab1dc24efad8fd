//! The only file of the agent that starts programs: the iptables tools, a few times, `modprobe` in `init`, and
//! `nft` in `doctor`.

mod time_limit;

use std::fmt::Display;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::heartbeat;
use crate::kernel::KernelError;
use time_limit::TimeLimit;

/// Time limit of a tool; then it is killed. The agent's own rules take milliseconds, but the tools also read the rules
/// of other programs, and wait up to 5 s for the iptables lock.
const TOOL_TIMEOUT: Duration = Duration::from_secs(60);

/// A running tool. Its end is noticed at once, so that a caller who first waits for another tool does not use up the
/// time limit of this one.
#[derive(Debug)]
#[must_use = "without a wait, the result of the tool is lost"]
pub(super) struct Running {
    program: String,
    waiter: JoinHandle<Ended>,
}

/// How a tool has ended.
#[derive(Debug)]
struct Ended {
    output: std::io::Result<Output>,
    was_killed: bool,
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
    start_within(TOOL_TIMEOUT, program, arguments, input)
}

fn start_within(
    limit: Duration,
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
        .process_group(0)
        .spawn()
        .map_err(|error| {
            failed(
                program,
                &format_args!("{error}; install the package {}", package(program)),
            )
        })?;
    let limit = match TimeLimit::begin(&child, limit) {
        Ok(limit) => limit,
        Err(error) => {
            drop(child.kill());
            drop(child.wait());
            return Err(failed(program, &error));
        }
    };
    // The tools read all input before they write much, so writing everything first cannot deadlock. For a tool that
    // ends early, the exit status counts.
    let written = match (input, child.stdin.take()) {
        (Some(text), Some(mut stdin)) => stdin.write_all(text.as_bytes()),
        _ => Ok(()),
    };
    let running = Running::wait_for(program, child, limit)?;
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            // The result for a partial text does not matter.
            drop(running.finish());
            Err(failed(program, &error))
        }
        _ => Ok(running),
    }
}

impl Running {
    fn wait_for(program: &str, child: Child, limit: TimeLimit) -> Result<Self, KernelError> {
        let wait = move || {
            let output = child.wait_with_output();
            let was_killed = limit.end();
            Ended { output, was_killed }
        };
        let waiter = std::thread::Builder::new().name("tool-output".into());
        let waiter = waiter
            .spawn(wait)
            .map_err(|error| failed(program, &error))?;
        let program = program.into();
        Ok(Self { program, waiter })
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The exit status and message of the tool.
    pub(super) fn finish(self) -> Result<Output, KernelError> {
        let Self { program, waiter } = self;
        let ended = waiter.join();
        heartbeat::beat();
        let Ended { output, was_killed } = ended
            .map_err(|_panic| failed(&program, &"the thread that read its output panicked"))?;
        let output = output.map_err(|error| failed(&program, &error))?;
        if was_killed {
            let next = "it did not end and was killed; check dmesg and the load of the node, and run it by hand";
            return Err(failed(&program, &next));
        }
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
    use std::time::Instant;

    use super::*;

    /// A script within a limit of 0.2 s, and the error.
    fn killed(script: &str, input: Option<&str>) -> String {
        let begin = Instant::now();
        let limit = Duration::from_millis(200);
        let running = start_within(limit, "sh", &["-c", script], input).unwrap();
        let error = running.finish().unwrap_err().to_string();
        assert!(begin.elapsed() < Duration::from_secs(20), "{script}");
        error
    }

    #[test]
    fn a_tool_that_has_ended_is_a_step() {
        let heartbeat = heartbeat::Heartbeat::default();
        heartbeat.adopt();
        run("true", &[], None).unwrap();
        killed("sleep 60", None);
        assert_eq!(heartbeat.count(), 2);
    }

    #[test]
    fn a_tool_that_does_not_end_is_killed() {
        let error = killed("sleep 60", None);
        assert!(error.contains("did not end and was killed"), "{error}");
    }

    #[test]
    fn a_tool_that_ended_in_time_succeeds_however_late_its_result_is_read() {
        let limit = Duration::from_millis(200);
        let hangs = start_within(limit, "sh", &["-c", "sleep 60"], None).unwrap();
        let ends = start_within(limit, "sh", &["-c", "echo done"], None).unwrap();
        hangs.finish().unwrap_err();
        std::thread::sleep(limit);
        assert_eq!(ends.finish().unwrap().stdout, b"done\n");
    }

    #[test]
    fn a_child_of_the_tool_that_keeps_its_output_open_is_killed_too() {
        for script in ["sleep 60 & sleep 60", "sleep 60 & exit 0"] {
            let error = killed(script, None);
            assert!(error.contains("did not end and was killed"), "{error}");
        }
    }

    #[test]
    fn a_tool_that_does_not_read_its_input_is_killed() {
        let more_than_a_pipe_holds = "x".repeat(1 << 20);
        let error = killed("sleep 60", Some(&more_than_a_pipe_holds));
        assert!(error.contains("did not end and was killed"), "{error}");
    }

    #[test]
    fn the_output_of_a_tool_that_ends_in_time_is_complete() {
        let output = run("sh", &["-c", "head -c 300000 /dev/zero; cat"], Some("end")).unwrap();
        assert_eq!(output.stdout.len(), 300_003);
        let error = run("sh", &["-c", "echo broken >&2; exit 3"], None).unwrap_err();
        assert!(
            error.to_string().contains("exit status: 3: broken"),
            "{error}"
        );
    }

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
