//! The runner of a scenario in parts.

use anyhow::{Context as _, Result};

use super::Lab;
use crate::scenario::Checks;

/// A part of a scenario and its name, which appears in errors only.
pub(crate) type Part<L> = (&'static str, fn(&mut L, &mut Checks) -> Result<()>);

impl<S> Lab<'_, S> {
    /// Runs parts one after the other. Behind each, all programs must still run.
    ///
    /// # Errors
    /// The first error of a part, with its name and the last lines of the programs' logs.
    pub(crate) fn run_parts(&mut self, checks: &mut Checks, parts: &[Part<Self>]) -> Result<()> {
        for (name, part) in parts {
            let done = part(self, checks).and_then(|()| self.cluster.check_running());
            done.map_err(|error| self.cluster.with_logs(error))
                .context(*name)?;
        }
        Ok(())
    }
}
