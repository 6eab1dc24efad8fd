//! A running program: a guard, and a handle to stop, pause and measure it.

use std::process::{Child, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

/// How a program ended and what it printed.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its standard output.
    pub output: String,
    /// Its standard error.
    pub errors: String,
}

/// A program that runs; dropping it ends it with SIGKILL and reaps it.
#[derive(Debug)]
pub struct Running {
    line: String,
    pid: u32,
    // Asking whether it has ended may reap it.
    child: Mutex<Child>,
}

impl Running {
    pub(super) fn new(line: String, child: Child) -> Self {
        Self {
            line,
            pid: child.id(),
            child: Mutex::new(child),
        }
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        // A thread that panicked while it held this left a process id behind, which stays right.
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// If the kernel cannot report it.
    pub fn ended(&self) -> Result<Option<ExitStatus>> {
        self.child()
            .try_wait()
            .with_context(|| format!("look at {}", self.line))
    }

    /// Its command line, for messages.
    #[must_use]
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Its number, as the kernel knows it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its resident memory in kB, while it runs.
    #[must_use]
    pub fn memory_kb(&self) -> Option<u64> {
        self.status("VmRSS:")
    }

    /// Of its resident memory what it asked for itself, in kB, while it runs. The rest is the program
    /// and its libraries.
    #[must_use]
    pub fn own_memory_kb(&self) -> Option<u64> {
        self.status("RssAnon:")
    }

    /// The most that was ever resident, in kB, while it runs.
    #[must_use]
    pub fn peak_memory_kb(&self) -> Option<u64> {
        self.status("VmHWM:")
    }

    fn status(&self, name: &str) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }

    /// The processor time that all its threads took so far, while it runs. The kernel counts in
    /// hundredths.
    #[must_use]
    pub fn cpu_seconds(&self) -> Option<f64> {
        cpu_seconds(self.pid)
    }

    /// Asks it to end (SIGTERM).
    ///
    /// # Errors
    /// If it has already ended.
    pub fn ask_to_end(&self) -> Result<()> {
        self.signal(Signal::SIGTERM)
    }

    /// Stops it where it is, as a machine that is overloaded does.
    ///
    /// # Errors
    /// If it has already ended.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Resumes it.
    ///
    /// # Errors
    /// If it has already ended.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        if let Some(status) = self.ended()? {
            bail!("{} had already ended with {status}", self.line);
        }
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.pid)?);
        nix::sys::signal::kill(pid, signal)
            .with_context(|| format!("send {signal} to {}", self.line))
    }

    /// Ends it at once (SIGKILL) and reaps it.
    ///
    /// # Errors
    /// If it had already ended, or the kernel refuses.
    pub fn kill(self) -> Result<()> {
        if let Some(status) = self.ended()? {
            bail!("{} had already ended with {status}", self.line);
        }
        let mut child = self.child();
        child
            .kill()
            .with_context(|| format!("kill {}", self.line))?;
        child
            .wait()
            .with_context(|| format!("reap {}", self.line))?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Nothing useful can be done here about a child that is gone already.
        let mut child = self.child();
        let _killed = child.kill();
        let _reaped = child.wait();
    }
}

/// The processor time that all threads of a process took so far, while it runs.
#[must_use]
pub fn cpu_seconds(process: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let ticks = cpu_ticks(&stat)?;
    Some(f64::from(u32::try_from(ticks).ok()?) / 100.0)
}

/// The processor time of a process and of every process below it that has ended, seconds.
#[must_use]
pub fn cpu_seconds_with_ended_children(process: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let ticks: u64 = times(&stat)?.iter().sum();
    Some(f64::from(u32::try_from(ticks).ok()?) / 100.0)
}

/// User and system time of `/proc/PID/stat`, without children.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let [user, system, ..] = times(stat)?;
    Some(user + system)
}

/// User and system time of a process, then those of its ended children, from `/proc/PID/stat`. The
/// name of the program, in parentheses, may hold anything.
fn times(stat: &str) -> Option<[u64; 4]> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields = fields.split_whitespace().skip(11).take(4);
    let times: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
    times.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_the_name_whatever_it_holds() {
        let stat = "77 (a) b) S 1 77 77 0 -1 4194304 100 0 0 0 250 31 0 0 20 0 1 0 5 1000 200";
        assert_eq!(cpu_ticks(stat), Some(281));
        let with_children =
            "77 (a) S 1 77 77 0 -1 4194304 100 0 0 0 250 31 7 2 20 0 1 0 5 1000 200";
        assert_eq!(times(with_children), Some([250, 31, 7, 2]));
        assert_eq!(cpu_ticks("77 (a"), None);
    }
}
