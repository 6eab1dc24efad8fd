//! The agent's programmer in this process, on a thread in a network namespace. It gets plans from memory, as from the
//! stream, and returns the result of each.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use portolan_agent::kernel::linux::Datagram;
use portolan_agent::kernel::{IptablesChoice, LinuxKernel};
use portolan_agent::plan_watch::PlanWatch;
use portolan_agent::programmer::{Applied, Programmer};
use portolan_agent::record::Record;
use portolan_plan::{PlanHash, StagedChanges};
use tokio::sync::watch;

use super::watched::{Asked, Opened, Watch, Watched};
use crate::namespace::Namespace;
use crate::waits::Waits;

/// The longest that programming a plan may take, on hardware.
const LIMIT: Duration = Duration::from_secs(120);

/// Result of a plan.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The result from the programmer, with the time since it had the plan.
    pub applied: Applied,
    /// Its requests to the kernel meanwhile.
    pub asked: Asked,
}

/// A programmer at work. It does not listen to events of the network: nothing happens there.
#[derive(Debug)]
pub struct Agent {
    plans: Arc<PlanWatch>,
    applied: watch::Receiver<Applied>,
    watch: Watch,
    thread: Option<JoinHandle<Result<()>>>,
    waits: Waits,
}

impl Agent {
    /// Starts one whose record is in `state`. `tap` is shown all that goes to IPVS, to sets and to
    /// nf_tables.
    ///
    /// # Errors
    /// The record cannot be opened, or no thread be started.
    pub fn start(
        namespace: &Namespace,
        state: &Path,
        waits: Waits,
        tap: Option<impl FnMut(Datagram<'_>) + Clone + Send + 'static>,
    ) -> Result<Self> {
        let plans = Arc::new(PlanWatch::default());
        let (send, applied) = watch::channel(Applied::default());
        let watch = Watch::default();
        let record = Record::open(state)?;
        let state = state.to_owned();
        let thread = namespace.start("programmer", {
            let (plans, watch) = (plans.clone(), watch.clone());
            move || {
                let mut kernel = LinuxKernel::open(IptablesChoice::Auto, &state)?;
                let mut of_tables: Option<Opened> = None;
                if let Some(tap) = tap {
                    kernel.tap(tap.clone());
                    of_tables = Some(Box::new(move |tables| tables.tap(tap)));
                }
                let kernel = Watched::new(kernel, watch, of_tables);
                // No receiver tracks draining, so nothing has a deadline.
                let draining = watch::Sender::default();
                let health = Arc::default();
                Programmer::new(kernel, plans, record, send, draining, health).run();
                Ok(())
            }
        })?;
        Ok(Self {
            plans,
            applied,
            watch,
            thread: Some(thread),
            waits,
        })
    }

    /// Gives it a plan, or changes of the one it has, and waits until it is in force.
    ///
    /// # Errors
    /// It failed, or took too long.
    pub fn program(&self, staged: StagedChanges) -> Result<Outcome> {
        drop(self.watch.take());
        let generation = self.plans.commit(staged, PlanHash::default())?;
        let applied = self.waits.until(
            "the plan to be in force",
            LIMIT,
            Duration::from_millis(1),
            || {
                if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
                    bail!("the programmer has ended");
                }
                let applied = self.applied.borrow().clone();
                Ok((applied.generation >= generation).then_some(applied))
            },
            || "it has not finished".into(),
        )?;
        if applied.failed > 0 {
            bail!(
                "{} operations failed: {}",
                applied.failed,
                applied.failures.join("; ")
            );
        }
        Ok(Outcome {
            applied,
            asked: self.watch.take(),
        })
    }

    /// Ends it; what it programmed stays.
    ///
    /// # Errors
    /// Its own, if it could not even begin.
    pub fn stop(mut self) -> Result<()> {
        self.plans.stop();
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        let ended = thread.join();
        ended
            .map_err(|_| anyhow!("the programmer panicked"))?
            .context("the programmer")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.plans.stop();
        if let Some(thread) = self.thread.take() {
            // Callers that need its error call `stop`.
            drop(thread.join());
        }
    }
}
