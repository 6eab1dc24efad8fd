//! Runs the program of scenarios: in a guest, or here where the kernel has IPVS.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use crate::guest::{self, Image, Job, Payload};
use crate::nested::{self, Programs, SCENARIOS};
use crate::{packages, process, progress};

/// Where the guest has the scenarios' input files.
const FILES: &str = "/portolan/e2e";
/// What in `e2e/` is code, not input.
const NOT_INPUT: &[&str] = &["src", "lab", "tests", "target", "Cargo.toml"];
/// The longest run so far is the soak of all scenarios; one minute a kind of client.
const DEADLINE: Duration = Duration::from_secs(2400);

/// Which kernel is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// The emulated one.
    Guest,
    /// This machine's own.
    Here,
    /// This machine's own if it has IPVS and we are root, else the emulated one.
    Auto,
}

/// What it takes to run scenarios: packages, programs, and a guest if the kernel here will not do.
pub struct Stage {
    programs: Programs,
    image: Option<Image>,
}

/// How one run differs from another.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mode {
    /// No deadline, and a shell for whoever wants to look.
    pub keep: bool,
}

impl Stage {
    /// Prepares the machine and builds.
    ///
    /// # Errors
    /// Packages are missing and cannot be installed, or a build failed.
    pub fn prepare(place: Place) -> Result<Self> {
        let versions = packages::ensure()?;
        let programs = Programs::build()?;
        let here = match place {
            Place::Here => true,
            Place::Guest => false,
            Place::Auto => packages::is_root()? && kernel_has_ipvs()?,
        };
        let image = if here {
            None
        } else {
            Some(guest::prepare(&versions)?)
        };
        Ok(Self { programs, image })
    }

    /// Runs `portolan-scenarios` with these arguments and returns its exit status.
    ///
    /// # Errors
    /// It cannot be started, or the guest failed.
    pub fn run(&self, words: &[&str], mode: Mode, sink: &mut (dyn Write + Send)) -> Result<u8> {
        let mut words: Vec<&str> = words.to_vec();
        match &self.image {
            None => {
                let files = nested::root().join("e2e");
                let mut command = process::built(&self.programs.named(SCENARIOS)?.path)?;
                command.args(words).arg("--files").arg(files);
                Ok(exit_code(nested::stream(&mut command, sink)?))
            }
            Some(image) => {
                words.splice(0..0, [SCENARIOS]);
                words.extend(["--files", FILES]);
                let mut job = self.job(&words)?;
                job.payload
                    .folder(FILES, &nested::root().join("e2e"), NOT_INPUT)?;
                job.deadline = (!mode.keep).then_some(DEADLINE);
                job.shell = mode.keep;
                guest::run(image, &job, sink)
            }
        }
    }

    /// Runs a test program on the same kernel and returns its exit status.
    ///
    /// # Errors
    /// It cannot be started, or the guest failed.
    pub fn test(&self, path: &Path, words: &[&str], sink: &mut (dyn Write + Send)) -> Result<u8> {
        let Some(image) = &self.image else {
            return Ok(exit_code(nested::stream(
                process::built(path)?.args(words),
                sink,
            )?));
        };
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut all = vec![name.as_str()];
        all.extend(words);
        let mut job = self.job(&all)?;
        job.payload.program(path);
        guest::run(image, &job, sink)
    }

    fn job(&self, words: &[&str]) -> Result<Job> {
        let command = words.iter().map(|word| (*word).to_owned()).collect();
        Ok(with_our_programs(
            Job::new(command, Payload::default()),
            &self.programs,
        ))
    }
}

/// Puts our programs into the guest, and tells its command about the terminal here.
#[must_use]
pub fn with_our_programs(mut job: Job, programs: &Programs) -> Job {
    for binary in programs.iter() {
        job.payload.program(&binary.path);
    }
    job.environment.extend(progress::for_programs());
    job
}

fn kernel_has_ipvs() -> Result<bool> {
    let there = || Path::new("/proc/net/ip_vs").exists();
    if !there() {
        // It fails where the kernel has no such module; the file tells afterwards.
        process::finish(process::program("modprobe")?.args(["--quiet", "ip_vs"]))?;
    }
    Ok(there())
}

/// A program ended by a signal has no exit status; 128 and more is how shells tell it.
fn exit_code(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    #[test]
    fn a_signal_becomes_an_exit_status_as_in_a_shell() {
        assert_eq!(exit_code(ExitStatus::from_raw(0)), 0);
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
    }
}
