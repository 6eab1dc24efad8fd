//! Steady traffic of several clients with a common start, and its results.

use std::time::Instant;

use anyhow::{Result, bail};

use crate::namespace::Namespace;
use crate::traffic::load::{Load, Rate, Tally};

/// Loads that run.
pub(crate) struct Loads {
    start: Instant,
    running: Vec<(String, Rate, Load)>,
}

/// A load that has ended.
pub(crate) struct Finished {
    /// Its name.
    pub(crate) name: String,
    pub(crate) rate: Rate,
    pub(crate) tally: Tally,
}

impl Loads {
    /// None yet; all will start sending at this moment.
    pub(crate) fn at(start: Instant) -> Self {
        Self {
            start,
            running: Vec::new(),
        }
    }

    /// Adds one.
    pub(crate) fn add(&mut self, name: String, client: &Namespace, rate: Rate) -> Result<()> {
        let load = Load::start(client, &rate, self.start)?;
        self.running.push((name, rate, load));
        Ok(())
    }

    /// Waits for the end of all.
    pub(crate) fn finish(self) -> Result<Vec<Finished>> {
        let finish = |(name, rate, load): (String, Rate, Load)| {
            let tally = load.finish()?;
            Ok(Finished { name, rate, tally })
        };
        self.running.into_iter().map(finish).collect()
    }
}

impl Finished {
    /// How many attempts were made, failed, and how slow the slowest was.
    pub(crate) fn summary(&self, what: &str) -> String {
        format!(
            "{}: {} of {} {what}, {} failed, slowest {} ms",
            self.name,
            self.tally.made,
            self.rate.wanted(),
            self.tally.failures.len(),
            self.tally.slowest.as_millis()
        )
    }

    /// Fails if an attempt failed, or less than this share of the attempts was made: such a load shows
    /// nothing.
    pub(crate) fn none_failed(&self, share: f64) -> Result<()> {
        let (made, wanted) = (self.tally.made, self.rate.wanted());
        if let Some((when, to, how)) = self.tally.failures.first() {
            bail!(
                "{} failed, the first after {:.3} s to {to}: {how}",
                self.tally.failures.len(),
                when.as_secs_f64()
            );
        }
        if f64::from(made) < share * f64::from(wanted) {
            bail!("only {made} of {wanted} were made");
        }
        Ok(())
    }
}
