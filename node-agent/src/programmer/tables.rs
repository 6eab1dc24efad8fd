//! The nftables dataplane in the passes of the programmer. [`TablesKeeper`] reads and writes the tables; here its results
//! become those of the pass.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use portolan_plan::{Dataplane, Family, ServiceId};
use portolan_reconcile::{Desired, Facts, Observed, Owned, VirtualServerKey};
use tracing::warn;

use super::part::TablesWork;
use super::{Outcome, Programmer, Trouble};
use crate::kernel::{Kernel, KernelError, TablesKernel};
use crate::plan_watch::Source;
use crate::tables::{
    DrainCount, FlowCleanup, ReconcileOptions, TablesDrift, TablesKeeper, TablesOutcome,
};
use crate::traffic::Traffic;

/// The tables of this node.
#[derive(Debug)]
pub(super) struct TablesSide<T> {
    /// The keeper; `None` until it is needed.
    keeper: Option<TablesKeeper<T>>,
    /// Whether the tables serve Services.
    active: bool,
    /// Whether tables may exist although IPVS serves Services.
    may_exist: bool,
    /// Whether nothing of the IPVS dataplane is left in the kernel.
    ipvs_is_absent: bool,
    /// Whether the tables took over, and were not handed over since.
    serves: bool,
    /// Whether the last complete reconciliation succeeded.
    ready: bool,
}

impl<T> Default for TablesSide<T> {
    /// An earlier agent may have left tables.
    fn default() -> Self {
        Self {
            keeper: None,
            active: false,
            may_exist: true,
            ipvs_is_absent: false,
            serves: false,
            ready: false,
        }
    }
}

impl<T: TablesKernel> TablesSide<T> {
    /// What a complete plan demands.
    pub(super) fn work(&self, facts: Facts) -> TablesWork {
        if self.active {
            return TablesWork::Serve(facts.into());
        }
        TablesWork::HandOver {
            ipvs_marks: facts.settings().ipvs_marks(),
            facts: self.serves.then(|| facts.into()),
        }
    }

    /// Whether the tables are as the last complete plan demands.
    pub(super) fn is_ready(&self) -> bool {
        self.active && self.ready
    }

    /// Sets which dataplane serves Services.
    pub(super) fn select(&mut self, dataplane: Dataplane) {
        self.active = dataplane == Dataplane::Nftables;
        self.may_exist |= self.active;
        self.ipvs_is_absent &= self.active;
    }

    /// Whether the tables serve Services.
    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    /// Whether the tables serve Services, and nothing of IPVS is left.
    pub(super) fn is_alone(&self) -> bool {
        self.active && self.ipvs_is_absent
    }

    /// Whether a change of some Services can be reconciled without the rest. Connections of IPVS that still drain do not
    /// matter: no change of the plan concerns them.
    pub(super) fn is_in_step(&self) -> bool {
        let keeper = self.keeper.as_ref();
        self.active && keeper.is_some_and(TablesKeeper::is_in_step)
    }

    /// Time until the tables need something: a search for draining connections, or another attempt at refused elements.
    ///
    /// After a failed pass, refused elements wait for the next one, whose time the failure decides.
    pub(super) fn left(&mut self, gone: &BTreeSet<IpAddr>, now: Instant, failed: bool) -> Duration {
        let Some(keeper) = self.keeper.as_mut().filter(|_| self.active) else {
            return Duration::MAX;
        };
        let retry = match failed {
            true => Duration::MAX,
            false => keeper.retry_left(now),
        };
        keeper.drains_left(gone, now).min(retry)
    }

    /// Whether refused elements are to be tried again.
    pub(super) fn is_retry_due(&self, now: Instant) -> bool {
        let keeper = self.keeper.as_ref();
        self.active && keeper.is_some_and(|keeper| keeper.retry_left(now).is_zero())
    }

    /// Makes the next pass read the tables.
    pub(super) fn discard_shadow(&mut self) {
        self.keeper
            .iter_mut()
            .for_each(TablesKeeper::discard_shadow);
    }

    /// Whether another program may have changed the tables. Then the next pass reads them.
    pub(super) fn is_disturbed(&mut self) -> bool {
        let active = self.active;
        let keeper = self.keeper.as_mut().filter(|_| active);
        keeper.is_some_and(TablesKeeper::check_disturbed)
    }

    /// Counts of drift since the start, by kind.
    pub(super) fn drift(&self) -> TablesDrift {
        let keeper = self.keeper.as_ref();
        keeper.map_or_else(TablesDrift::new, TablesKeeper::drift)
    }

    /// Whether new connections are served by the tables.
    pub(super) fn serves(&self) -> bool {
        self.serves
    }

    /// Ends the UDP flows of backends that have left, if it is time.
    fn end_flows(&mut self, now: Instant) -> Vec<FlowCleanup> {
        let keeper = self.keeper.as_mut().filter(|_| self.active);
        keeper.map_or_else(Vec::new, |keeper| keeper.end_flows(now))
    }

    /// Searches for draining connections if it is time.
    pub(super) fn search_drains(
        &mut self,
        gone: &BTreeSet<IpAddr>,
        now: Instant,
    ) -> Option<DrainCount> {
        let keeper = self.keeper.as_mut().filter(|_| self.active)?;
        keeper.search_drains(gone, now)
    }
}

impl<K: Kernel> Programmer<K> {
    /// Reconciles the tables with the complete plan. Returns whether they serve it.
    pub(super) fn write_tables(&mut self, facts: &Facts, outcome: &mut Outcome) -> bool {
        let before = outcome.failed;
        let options = self.reconcile_options();
        let reconcile = |keeper: &mut TablesKeeper<K::Tables>| keeper.reconcile(facts, options);
        let done = outcome.step("tables", |_| self.keeper().map(reconcile));
        match done {
            Ok(done) => self.note_tables(done, outcome),
            Err(error) => outcome.fail(&error, &Family::BOTH),
        }
        self.tables.ready = outcome.failed == before;
        self.tables.serves |= self.tables.ready;
        self.tables.ready
    }

    /// The desired state of IPVS as long as the tables did not take over from it; `None` if it does not serve.
    pub(super) fn ipvs_goes_on(&self, facts: &Facts) -> Option<Desired> {
        let shadow = self.shadow.as_ref()?;
        let serves = !self.tables.serves && !shadow.sets.is_empty();
        serves.then(|| Desired::of_ipvs(facts, &shadow.host, &self.lacking))
    }

    /// Reconciles the tables with a change of some Services.
    pub(super) fn follow_tables(&mut self, before: &Facts, after: &Facts, outcome: &mut Outcome) {
        let options = self.reconcile_options();
        let done = outcome.step("tables", |_| {
            let keeper = self.tables.keeper.as_mut();
            keeper.and_then(|keeper| keeper.reconcile_part(before, after, options))
        });
        if let Some(done) = done {
            self.note_tables(done, outcome);
            return;
        }
        // The change cannot be separated from the rest.
        let plan = self.plans.plan();
        let facts = self.host().and_then(|host| Facts::new(&plan, host));
        if let Some(facts) = facts {
            self.balancers.clone_from(&facts.balancers);
            self.write_tables(&facts, outcome);
        }
    }

    /// The connections that frontends of the tables have counted.
    pub(super) fn connections_of_tables(
        &mut self,
    ) -> Result<Vec<(VirtualServerKey, Traffic)>, KernelError> {
        let counted = self.keeper()?.connections()?.into_iter();
        let traffic = |connections| Traffic {
            connections,
            ..Traffic::default()
        };
        Ok(counted.map(|(key, count)| (key, traffic(count))).collect())
    }

    fn reconcile_options(&self) -> ReconcileOptions {
        ReconcileOptions {
            may_remove: self.source == Source::Controller,
            now: Instant::now(),
        }
    }

    fn keeper(&mut self) -> Result<&mut TablesKeeper<K::Tables>, KernelError> {
        let keeper = match self.tables.keeper.take() {
            Some(keeper) => keeper,
            None => TablesKeeper::new(self.kernel.open_tables()?, Instant::now()),
        };
        Ok(self.tables.keeper.insert(keeper))
    }

    fn note_tables(&mut self, done: TablesOutcome, outcome: &mut Outcome) {
        outcome.operations += done.operations;
        for failure in &done.failures {
            let families: Vec<_> = failure.families.iter().copied().collect();
            outcome.fail(&failure.error, &families);
        }
        outcome.failed += done.failed.saturating_sub(done.failures.len());
        outcome.failed_families.extend(&done.failed_families);
        for cleanup in &done.flows {
            self.flows.count(cleanup);
        }
        outcome.of_services.extend(troubles(done));
    }

    /// Notes whether the IPVS dataplane is gone. If it is going, another pass follows at once, or when its connections
    /// have ended.
    pub(super) fn note_absence(
        &mut self,
        shadow: &Observed,
        owned: &Owned,
        desired: &Desired,
        outcome: &mut Outcome,
    ) {
        if desired.dataplane == Dataplane::Ipvs {
            return;
        }
        self.tables.ipvs_is_absent = is_absent(shadow, owned);
        let made = outcome.operations > 0 || self.drains.take_finished();
        let goes_on = made && !self.drains.is_draining();
        outcome.unfinished |= !self.tables.ipvs_is_absent && goes_on;
    }

    /// Removes the tables once IPVS serves Services: their connections end first.
    pub(super) fn remove_tables(&mut self, ipvs_marks: u32, outcome: &mut Outcome) {
        let complete = outcome.failed == 0 && self.source == Source::Controller;
        if !self.tables.may_exist || !complete {
            return;
        }
        if self.tables.keeper.is_none() && !self.kernel.may_have_tables() {
            self.tables.may_exist = false;
            return;
        }
        if let Err(error) = self.keeper() {
            outcome.fail(&error, &[]);
            return;
        }
        let (Some(keeper), Some(shadow)) = (&mut self.tables.keeper, &self.shadow) else {
            return;
        };
        self.drains.set_of_tables(DrainCount::default());
        let is_frontend = |key: &VirtualServerKey| shadow.virtual_servers.contains_key(key);
        let done = keeper.hand_over(ipvs_marks, &is_frontend);
        outcome.operations += done.changed.len();
        outcome.unfinished |= !done.changed.is_empty() && done.unfinished;
        for error in &done.errors {
            outcome.fail(error, &[]);
        }
        self.tables.serves &= !done.errors.is_empty();
        if !done.unfinished {
            self.tables.may_exist = false;
            self.tables.keeper = None;
        }
    }

    /// Searches for connections that drain in the tables if it is time.
    pub(super) fn search_table_drains(&mut self) {
        let (gone, now) = (self.plans.gone(), Instant::now());
        for done in self.tables.end_flows(now) {
            self.flows.count(&done);
        }
        if let Some(count) = self.tables.search_drains(&gone, now) {
            for error in &count.errors {
                warn!(%error, "could not search for draining connections; retrying");
            }
            self.drains.set_of_tables(count);
        }
    }
}

/// Whether nothing of the IPVS dataplane is left. Without its sets, rules that cannot be read are not the agent's.
fn is_absent(shadow: &Observed, owned: &Owned) -> bool {
    let mut servers = shadow.virtual_servers.keys();
    let mut rules = shadow.rules.values();
    !servers.any(|server| owned.contains(server))
        && rules.all(|rules| rules.is_empty())
        && shadow.sets.is_empty()
        && shadow.policy.is_empty()
        && shadow.routes.is_empty()
        && !shadow.device_up
}

/// What is wrong with Services. A refusal says more than the rest.
fn troubles(done: TablesOutcome) -> BTreeMap<ServiceId, Trouble> {
    let fallbacks = done.fallbacks.into_iter();
    let fallbacks = fallbacks.map(|(service, asked)| (service, Trouble::NoScheduler(asked)));
    let truncated = done.truncated.into_iter();
    let truncated = truncated.map(|(service, count)| (service, Trouble::TooManyEndpoints(count)));
    let refused = done.refused.into_iter().map(|(service, error)| {
        let KernelError { action, reason, .. } = error;
        (service, Trouble::Element { action, reason })
    });
    fallbacks.chain(truncated).chain(refused).collect()
}
