//! The only file that starts programs. Each is a member of [`Program`]; there is no way to start
//! anything else. Children are guards: dropping one ends and reaps it.

mod running;
mod which;

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub use running::{Ended, Running, cpu_seconds, cpu_seconds_with_ended_children};
pub use which::Program;

impl Program {
    /// Where it is: beside this program, then in PATH, then where administrators' programs live
    /// (they are often missing in PATH). The control plane's: in the folder that
    /// `KUBEBUILDER_ASSETS` names, then beside this program.
    ///
    /// # Errors
    /// When it is nowhere; the message says where it comes from.
    pub fn path(self) -> Result<PathBuf> {
        let beside = std::env::current_exe()
            .ok()
            .and_then(|exe| exe.parent().map(Path::to_owned));
        if self.is_of_control_plane() {
            let assets = std::env::var_os("KUBEBUILDER_ASSETS").filter(|path| !path.is_empty());
            return self.path_in(assets.map(PathBuf::from).into_iter().chain(beside));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = beside
            .into_iter()
            .chain(std::env::split_paths(&path))
            .chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
        self.path_in(folders)
    }

    fn path_in(self, folders: impl IntoIterator<Item = PathBuf>) -> Result<PathBuf> {
        folders
            .into_iter()
            .map(|folder| folder.join(self.name()))
            .find(|candidate| candidate.is_file())
            .with_context(|| {
                let places = if self.is_of_control_plane() {
                    "in KUBEBUILDER_ASSETS or beside this program"
                } else {
                    "beside this program or in PATH"
                };
                format!(
                    "{} was not found {places}; it comes from {}",
                    self.name(),
                    self.comes_from()
                )
            })
    }

    fn command(self, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(self.path()?);
        command.args(args);
        if self == Self::Kubectl {
            // Aliases and defaults of the caller would change its behaviour.
            command.env("KUBERC", "off");
        }
        if self == Self::Helm {
            for (name, value) in HELM {
                command.env(name, value);
            }
        }
        Ok(command)
    }

    /// Runs it in the calling thread's network namespace until it ends and gives back what it
    /// printed.
    ///
    /// # Errors
    /// When it cannot start or ends with anything but 0; the message contains its output.
    pub fn run(self, args: &[&str]) -> Result<String> {
        self.run_with_input(args, "")
    }

    /// Like [`Program::run`], with arguments that are separated by single spaces.
    ///
    /// # Errors
    /// As [`Program::run`].
    pub fn run_line(self, line: &str) -> Result<String> {
        self.run(&line.split(' ').collect::<Vec<_>>())
    }

    /// Starts it with pipes for its standard input and output.
    ///
    /// # Errors
    /// When it cannot start.
    pub fn talk(self, args: &[&str]) -> Result<Child> {
        let line = self.line(args);
        let mut command = self.command(args)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().with_context(|| format!("start {line}"))
    }

    /// Like [`Program::run`], with text on its standard input.
    ///
    /// # Errors
    /// As [`Program::run`].
    pub fn run_with_input(self, args: &[&str], input: &str) -> Result<String> {
        let ended = self.try_with_input(args, input)?;
        if !ended.status.success() {
            bail!(
                "{} ended with {}: {}",
                self.line(args),
                ended.status,
                ended.errors.trim()
            );
        }
        Ok(ended.output)
    }

    /// Runs it and gives back how it ended, whatever that was.
    ///
    /// # Errors
    /// When it cannot start or prints what is not UTF-8.
    pub fn try_with_input(self, args: &[&str], input: &str) -> Result<Ended> {
        let line = self.line(args);
        let output = finish(self.command(args)?.stdin(Stdio::piped()), input, &line)?;
        Ok(Ended {
            status: output.status,
            output: String::from_utf8(output.stdout)
                .with_context(|| format!("read the output of {line}"))?,
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs it without privileges until it ends, and returns its result.
    ///
    /// # Errors
    /// When it cannot start.
    pub fn try_without_privileges(self, args: &[&str]) -> Result<Ended> {
        let mut command = self.command(args)?;
        command.uid(UNPRIVILEGED_ID).gid(UNPRIVILEGED_ID);
        let line = self.line(args);
        let output = finish(command.stdin(Stdio::null()), "", &line)?;
        Ok(Ended {
            status: output.status,
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Starts it in the calling thread's network namespace and leaves it running; everything it
    /// prints goes to `log`.
    ///
    /// # Errors
    /// When it cannot start.
    pub fn start(self, args: &[&str], log: &File) -> Result<Running> {
        self.start_with(args, &[], log)
    }

    /// The same with this input.
    ///
    /// # Errors
    /// As [`Program::start`].
    pub fn start_reading(
        self,
        args: &[&str],
        input: impl Into<Stdio>,
        log: &File,
    ) -> Result<Running> {
        self.start_fed(args, &[], input.into(), log)
    }

    /// The same with more in its environment, and without input.
    ///
    /// # Errors
    /// As [`Program::start`].
    pub fn start_with(
        self,
        args: &[&str],
        environment: &[(&str, &Path)],
        log: &File,
    ) -> Result<Running> {
        self.start_fed(args, environment, Stdio::null(), log)
    }

    fn start_fed(
        self,
        args: &[&str],
        environment: &[(&str, &Path)],
        input: Stdio,
        log: &File,
    ) -> Result<Running> {
        let line = self.line(args);
        let child = self
            .command(args)?
            .envs(environment.iter().copied())
            .stdin(input)
            .stdout(log.try_clone()?)
            .stderr(log.try_clone()?)
            .spawn()
            .with_context(|| format!("start {line}"))?;
        Ok(Running::new(line, child))
    }

    fn line(self, args: &[&str]) -> String {
        args.iter()
            .fold(self.name().to_owned(), |line, arg| line + " " + arg)
    }
}

/// Plugins and settings of the caller would change the behaviour of helm.
const HELM: [(&str, &str); 4] = [
    ("HELM_CACHE_HOME", "/nonexistent"),
    ("HELM_CONFIG_HOME", "/nonexistent"),
    ("HELM_DATA_HOME", "/nonexistent"),
    ("HELM_DRIVER", "secret"),
];
/// The user that owns nothing.
const UNPRIVILEGED_ID: u32 = 65_534;

/// No program whose end is waited for takes this long.
const LONGEST: Duration = Duration::from_secs(300);

/// Starts a program, gives it `input`, and waits until it ends; kills it after [`LONGEST`].
fn finish(command: &mut Command, input: &str, line: &str) -> Result<Output> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {line}"))?;
    let stdin = child.stdin.take();
    let id = i32::try_from(child.id()).map(Pid::from_raw);
    let (ended, waits) = sync_channel::<()>(1);
    let (output, killed) = thread::scope(|scope| {
        // A thread, because a child that prints while it reads would block us both.
        scope.spawn(move || {
            // A child that does not read its input to the end says so by its exit status.
            let _sent = stdin.map(|mut stdin| stdin.write_all(input.as_bytes()));
        });
        let limit = scope.spawn(move || {
            let is_late = waits.recv_timeout(LONGEST) == Err(RecvTimeoutError::Timeout);
            is_late && id.is_ok_and(|id| kill(id, Signal::SIGKILL).is_ok())
        });
        let output = child.wait_with_output();
        drop(ended);
        (output, limit.join().unwrap_or(false))
    });
    let output = output.with_context(|| format!("wait for {line}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        !killed,
        "{line} did not end within {} s: {}",
        LONGEST.as_secs(),
        said.trim()
    );
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named_with_where_it_comes_from() {
        let error = Program::Agent
            .path_in(["/proc/self".into()])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("portolan-agent") && error.contains("cargo build"),
            "{error}"
        );
    }

    #[test]
    fn a_program_of_the_control_plane_is_never_taken_from_the_search_path() {
        let error = Program::Kubectl
            .path_in(["/proc/self".into()])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("in KUBEBUILDER_ASSETS") && error.contains("cargo lab control-plane"),
            "{error}"
        );
        assert!(!error.contains("PATH;"), "{error}");
    }

    #[test]
    fn a_failed_run_reports_the_line_and_the_words_of_the_program() {
        let error = Program::Cargo
            .run(&["no-such-subcommand"])
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("cargo no-such-subcommand ended with"),
            "{error}"
        );
        assert!(error.contains("no such command"), "{error}");
    }
}
