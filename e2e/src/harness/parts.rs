//! The runner of a scenario in parts.

use anyhow::{Context as _, Error, Result};

use super::Lab;
use crate::checks::Checks;

/// A part of a scenario and its name, which appears in errors only.
pub(crate) type Part<L> = (&'static str, fn(&mut L, &mut Checks) -> Result<()>);

/// The programs of a scenario, which run and write logs.
pub(crate) trait Environment {
    /// Fails if a program has ended.
    fn check_running(&self) -> Result<()>;

    /// An error with the last lines of the programs' logs, unless it has them already.
    fn with_logs(&self, error: Error) -> Error;
}

/// Runs parts one after the other. Behind each, all programs must still run.
///
/// # Errors
/// The first error of a part, with its name and the last lines of the programs' logs.
pub(crate) fn run_parts<L: Environment>(
    environment: &mut L,
    checks: &mut Checks,
    parts: &[Part<L>],
) -> Result<()> {
    for (name, part) in parts {
        let done = part(environment, checks).and_then(|()| environment.check_running());
        done.map_err(|error| environment.with_logs(error))
            .context(*name)?;
    }
    Ok(())
}

impl<S> Environment for Lab<'_, S> {
    fn check_running(&self) -> Result<()> {
        self.cluster.check_running()
    }

    fn with_logs(&self, error: Error) -> Error {
        self.cluster.with_logs(error)
    }
}

impl<S> Lab<'_, S> {
    /// As [`run_parts`].
    pub(crate) fn run_parts(&mut self, checks: &mut Checks, parts: &[Part<Self>]) -> Result<()> {
        run_parts(self, checks, parts)
    }
}
