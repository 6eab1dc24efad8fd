//! A keeper on a model kernel, with a clock that the test moves.

use std::time::{Duration, Instant};

use portolan_agent::kernel::SharedTables;
use portolan_agent::tables::{ReconcileOptions, TablesKeeper, TablesOutcome};
use portolan_reconcile::Facts;

pub(crate) struct Bench {
    pub(crate) kernel: SharedTables,
    pub(crate) keeper: TablesKeeper<SharedTables>,
    pub(crate) now: Instant,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::on(SharedTables::default())
    }

    /// A keeper that starts on a kernel with tables.
    pub(crate) fn on(kernel: SharedTables) -> Self {
        let now = Instant::now();
        let keeper = TablesKeeper::new(kernel.clone(), now);
        Self {
            kernel,
            keeper,
            now,
        }
    }

    pub(crate) fn options(&self) -> ReconcileOptions {
        ReconcileOptions {
            may_remove: true,
            now: self.now,
        }
    }

    pub(crate) fn reconcile(&mut self, facts: &Facts) -> TablesOutcome {
        let options = self.options();
        self.keeper.reconcile(facts, options)
    }

    /// Reconciles, and expects that everything succeeds.
    pub(crate) fn succeed(&mut self, facts: &Facts) -> TablesOutcome {
        let outcome = self.reconcile(facts);
        assert_eq!(outcome.failures, []);
        assert_eq!(outcome.refused, [].into());
        outcome
    }

    pub(crate) fn pass_time(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    /// The executed transactions since the last call.
    pub(crate) fn commits(&self) -> Vec<Vec<String>> {
        std::mem::take(&mut self.kernel.lock().commits)
    }
}
