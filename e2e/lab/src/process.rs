//! The only module that starts programs. Touches: the process table.
//!
//! Invariant: a started program is in the table of `programs.rs`, is a developer's tool needed for building anyway
//! (cargo, rustc, git, go for the control plane), or was built or found by `nested.rs` and `tools.rs`. Long-running
//! children end with the lab.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use anyhow::{Context, Result, bail};

use crate::programs;

/// Developers' tools, which every machine that can build this project has. Go is needed only for the control plane;
/// `tools.rs` reports if it is missing. rustc links with cc.
const DEVELOPER_TOOLS: &[&str] = &["cargo", "cc", "git", "go", "rustc"];

/// Variables that an outer `cargo run` sets for one package and that a nested cargo must not inherit.
const OUTER_CARGO: &[&str] = &[
    "CARGO_BIN_NAME",
    "CARGO_CRATE_NAME",
    "CARGO_PRIMARY_PACKAGE",
];

/// A Debian program of the table, or a developer's tool.
///
/// # Errors
/// The program is in no table, so it would be missing on a fresh machine.
pub fn program(name: &str) -> Result<Command> {
    if programs::find(name).is_some() {
        let mut command = raw(name);
        command.env("PATH", with_system_folders());
        Ok(command)
    } else if DEVELOPER_TOOLS.contains(&name) {
        let mut command = raw(name);
        if name == "go" {
            command.env("PATH", with_folders_of_go());
        }
        Ok(command)
    } else {
        bail!(
            "`{name}` is not in the table of programs; add it with its Debian package and the \
             reason to e2e/lab/src/programs.rs"
        )
    }
}

/// The same; the kernel sends `signal` to it when the lab ends for any reason.
///
/// The signal is sent at the end of the *thread* that starts it, so start it from a long-lived one.
///
/// # Errors
/// As [`program`].
pub fn dying_with_us(name: &str, signal: &str) -> Result<Command> {
    started_by("setpriv", &["--pdeathsig", signal, "--"], &program(name)?)
}

/// A command started by another program, after its options.
fn started_by(name: &str, options: &[&str], inner: &Command) -> Result<Command> {
    let mut command = program(name)?;
    command
        .args(options)
        .arg(inner.get_program())
        .args(inner.get_args());
    for (key, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(key, value),
            None => command.env_remove(key),
        };
    }
    Ok(command)
}

/// A nested cargo, without the outer cargo's variables about this package.
///
/// # Errors
/// As [`program`].
pub fn cargo() -> Result<Command> {
    let mut command = dying_with_us("cargo", "TERM")?;
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let of_package = text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_");
        if of_package || OUTER_CARGO.contains(&&*text) || text == "LD_LIBRARY_PATH" {
            command.env_remove(&name);
        }
    }
    Ok(command)
}

/// A program that a nested cargo has just built; it ends with the lab.
///
/// # Errors
/// `setpriv` left the table.
pub fn built(path: &Path) -> Result<Command> {
    started_by("setpriv", &["--pdeathsig", "TERM", "--"], &raw(path))
}

/// The same with limits enforced by the kernel: processor time in seconds, memory in bytes.
///
/// # Errors
/// As [`built`].
pub fn limited(path: &Path, seconds: f64, memory: u64) -> Result<Command> {
    let limits = [format!("--cpu={seconds:.0}"), format!("--as={memory}")];
    started_by("prlimit", &[&limits[0], &limits[1], "--"], &built(path)?)
}

/// This program in another process, which ends with the lab. Work that is not timed has a lower priority.
///
/// # Errors
/// Its path cannot be read, or a program left the table.
pub fn own(is_timed: bool) -> Result<Command> {
    // The file may be replaced by a build of tests; this path still refers to the running program.
    let own = built(Path::new(&format!("/proc/{}/exe", std::process::id())))?;
    match is_timed {
        true => Ok(own),
        false => started_by("nice", &["--adjustment=19"], &own),
    }
}

/// A program of the control plane found by `tools.rs`, to query its version.
#[must_use]
pub fn found(path: &Path) -> Command {
    raw(path)
}

/// Runs to completion and returns its output.
///
/// # Errors
/// It cannot be started, or failed; the message has its last output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = finish(command)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = if output.stderr.is_empty() {
        &output.stdout
    } else {
        &output.stderr
    };
    bail!(
        "`{}` failed ({}): {}",
        shown(command),
        output.status,
        last_lines(words, 12)
    )
}

/// Runs to completion, regardless of the exit status.
///
/// # Errors
/// It cannot be started.
pub fn finish(command: &mut Command) -> Result<Output> {
    command.stdin(Stdio::null());
    command
        .output()
        .with_context(|| format!("starting `{}`", shown(command)))
}

/// Starts a command, and returns its standard output, too.
///
/// # Errors
/// It cannot be started.
pub fn piped(command: &mut Command) -> Result<(Child, ChildStdout)> {
    let shown = shown(command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting `{shown}`"))?;
    let output = child.stdout.take();
    Ok((
        child,
        output.context("a piped child has a standard output")?,
    ))
}

/// A command as typed in a shell.
#[must_use]
pub fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(command.get_args().map(|word| word.to_string_lossy()));
    words.join(" ")
}

/// The last lines of a program's output.
#[must_use]
pub fn last_lines(bytes: &[u8], count: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim_end)
        .filter(|l| !l.is_empty())
        .collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[allow(
    clippy::disallowed_methods,
    reason = "the one place; its callers have checked the name"
)]
fn raw(name: impl AsRef<OsStr>) -> Command {
    Command::new(name)
}

/// Debian omits the folders of system tools from the PATH of ordinary users.
fn with_system_folders() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/sbin:/sbin")
}

/// Go's installer leaves it to the user to extend PATH.
fn with_folders_of_go() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/local/go/bin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_outside_the_table_is_refused_with_the_way_to_add_it() {
        let message = program("wget").unwrap_err().to_string();
        assert!(
            message.contains("`wget`") && message.contains("programs.rs"),
            "{message}"
        );
        assert!(program("/usr/bin/ip").is_err());
    }

    #[test]
    fn a_failure_names_the_command_and_its_last_words() {
        let mut query = program("dpkg-query").unwrap();
        let error = output(query.args(["-W", "no-such-package"])).unwrap_err();
        let message = error.to_string();
        for part in ["dpkg-query -W no-such-package", "no packages found"] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn last_lines_skips_empty_ones_and_keeps_the_order() {
        assert_eq!(last_lines(b"a\r\n\nb\nc\n\n", 2), "b\nc");
        assert_eq!(last_lines(b"", 2), "");
    }
}
