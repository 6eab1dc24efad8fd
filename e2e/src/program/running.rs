//! A program that was started: a guard, and a way to stop, pause and measure it.

use std::process::{Child, ExitStatus};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

/// A program that runs; dropping it ends it with SIGKILL and reaps it.
#[derive(Debug)]
pub struct Running {
    pub(super) line: String,
    pub(super) child: Child,
}

impl Running {
    /// How it ended, if it did.
    ///
    /// # Errors
    /// When the kernel cannot tell.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child
            .try_wait()
            .with_context(|| format!("look at {}", self.line))
    }

    /// Its command line, for messages.
    #[must_use]
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Its resident memory in kB, while it runs.
    #[must_use]
    pub fn memory_kb(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }

    /// Asks it to end (SIGTERM).
    ///
    /// # Errors
    /// When it has ended by itself already.
    pub fn ask_to_end(&mut self) -> Result<()> {
        self.signal(Signal::SIGTERM)
    }

    /// Stops it where it is, as a machine that is overloaded does.
    ///
    /// # Errors
    /// When it has ended by itself already.
    pub fn pause(&mut self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it has ended by itself already.
    pub fn resume(&mut self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        if let Some(status) = self.ended()? {
            bail!("{} had already ended with {status}", self.line);
        }
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id())?);
        nix::sys::signal::kill(pid, signal)
            .with_context(|| format!("send {signal} to {}", self.line))
    }

    /// Ends it at once (SIGKILL) and reaps it.
    ///
    /// # Errors
    /// When it had ended by itself, or the kernel refuses.
    pub fn kill(mut self) -> Result<()> {
        if let Some(status) = self.ended()? {
            bail!("{} had already ended with {status}", self.line);
        }
        self.child
            .kill()
            .with_context(|| format!("kill {}", self.line))?;
        self.child
            .wait()
            .with_context(|| format!("reap {}", self.line))?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Nothing useful can be done here about a child that is gone already.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}
