//! The keeper: reads the tables when necessary, compares them with the plan, and commits the differences.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use portolan_plan::Family;
use portolan_reconcile::nftables::{LayoutPrint, ObservedTables, Tables, TablesDocument, Touched};
use portolan_reconcile::{Facts, VirtualServerKey};

use super::attempt::Work;
use super::drains::{DrainCount, Drains};
use super::drift::{DriftWatch, TablesDrift};
use super::extent::by_family;
use super::flows::{FlowCleanup, Flows};
use super::outcome::TablesOutcome;
use super::retry::Retries;
use crate::heartbeat;
use crate::kernel::{KernelError, TablesKernel};

/// Keeps the tables as the plan demands.
///
/// It caches what it wrote as a shadow. After a doubtful result, and when the caller asks for it, it reads the kernel
/// again, and what differs from the shadow is drift.
#[derive(Debug)]
pub struct TablesKeeper<K> {
    pub(super) kernel: K,
    /// The tables of the last plan.
    tables: Option<Tables>,
    pub(super) shadow: Option<ObservedTables>,
    /// The shadow that was discarded before a complete read.
    left: Option<ObservedTables>,
    pub(super) drift: DriftWatch,
    pub(super) retries: Retries,
    /// Families in which clients may stay with a backend that takes no new connections.
    pub(super) purges: BTreeSet<Family>,
    pub(super) flows: Flows,
    pub(super) drains: Drains,
    /// Whether the shadow equals the last plan, except for refused elements.
    in_step: bool,
    /// Families whose table was changed to take no new connections. The listed rules may not show it: the kernel may list
    /// them in another form.
    pub(super) yielded: BTreeSet<Family>,
    /// How the kernel lists tables that only keep connections.
    pub(super) keeping: BTreeMap<Family, LayoutPrint>,
    /// Families whose table was deleted, but not yet the UDP flows that it translated.
    pub(super) udp_due: BTreeSet<Family>,
}

/// How to reconcile.
#[derive(Debug, Clone, Copy)]
pub struct ReconcileOptions {
    /// Whether the plan is complete and new, so that what it does not contain may be removed.
    pub may_remove: bool,
    /// The time.
    pub now: Instant,
}

impl<K: TablesKernel> TablesKeeper<K> {
    /// A keeper that knows nothing about the kernel yet. Existing tables are adopted.
    pub fn new(kernel: K, now: Instant) -> Self {
        Self {
            kernel,
            tables: None,
            shadow: None,
            left: None,
            drift: DriftWatch::default(),
            retries: Retries::default(),
            purges: BTreeSet::new(),
            flows: Flows::default(),
            drains: Drains::new(now),
            in_step: false,
            yielded: BTreeSet::new(),
            keeping: BTreeMap::new(),
            udp_due: BTreeSet::new(),
        }
    }

    /// Reconciles the tables with the facts of the complete plan.
    pub fn reconcile(&mut self, facts: &Facts, options: ReconcileOptions) -> TablesOutcome {
        self.yielded.clear();
        self.drift.set_mode(facts.settings().drift);
        self.drains.set_deadlines(facts);
        let mut tables = Tables::of(facts);
        if let Some(before) = &self.tables {
            tables.accept_like(before);
        }
        self.write(tables, None, options)
    }

    /// Reconciles the tables with a change of some Services. `before` and `after` are the facts of only these, on the
    /// same node and network. `None` if the change cannot be separated from the rest, or if the tables are not known to
    /// be as the last plan demands: then [`Self::reconcile`] has to be called.
    pub fn reconcile_part(
        &mut self,
        before: &Facts,
        after: &Facts,
        options: ReconcileOptions,
    ) -> Option<TablesOutcome> {
        if !self.is_in_step() {
            return None;
        }
        let mut tables = self.tables.take()?;
        let Some(touched) = tables.replace(before, after) else {
            self.tables = Some(tables);
            return None;
        };
        self.drains.replace_deadlines(before, after);
        Some(self.write(tables, Some(touched), options))
    }

    /// Whether a part can be reconciled.
    pub fn is_in_step(&self) -> bool {
        self.in_step
            && self.shadow.is_some()
            && self.purges.is_empty()
            && self.flows.is_quiet()
            && !self.drift.leaves_alone()
    }

    /// Whether the next reconciliation reads the kernel.
    pub fn is_read_due(&self) -> bool {
        self.shadow.is_none()
    }

    /// Makes the next reconciliation read the kernel, for example once in every sync period.
    pub fn discard_shadow(&mut self) {
        if let Some(shadow) = self.shadow.take() {
            self.left = Some(shadow);
        }
    }

    /// Whether another program may have changed the tables. The next reconciliation then reads the kernel.
    pub fn check_disturbed(&mut self) -> bool {
        let disturbed = self.kernel.is_disturbed();
        if disturbed {
            self.discard_shadow();
        }
        disturbed
    }

    /// Time until refused elements are tried again.
    pub fn retry_left(&self, now: Instant) -> Duration {
        self.retries.left(now)
    }

    /// The new connections of each frontend, as far as the kernel has counted any.
    ///
    /// # Errors
    /// [`KernelError`] if they cannot be read.
    pub fn connections(&mut self) -> Result<Vec<(VirtualServerKey, u64)>, KernelError> {
        self.kernel.connections()
    }

    /// Counts of drift since the start, by kind.
    pub fn drift(&self) -> TablesDrift {
        self.drift.counts()
    }

    /// The tables as they were last read or written, for people; `None` if they have to be read.
    pub fn document(&self) -> Option<TablesDocument> {
        let shadow = self.shadow.as_ref()?;
        Some(TablesDocument::new(shadow, self.tables.as_ref()))
    }

    /// Time until draining connections are searched for, or UDP flows of a backend end that has left. `gone` are the
    /// addresses that belong to no endpoint of the cluster.
    pub fn drains_left(&mut self, gone: &BTreeSet<IpAddr>, now: Instant) -> Duration {
        self.drains.left(gone, now).min(self.flows.left(now))
    }

    /// Ends the UDP flows of backends that have left, if it is time.
    pub fn end_flows(&mut self, now: Instant) -> Vec<FlowCleanup> {
        match &self.tables {
            Some(tables) if self.flows.left(now).is_zero() => {
                self.flows.clean(&mut self.kernel, tables, now)
            }
            _ => Vec::new(),
        }
    }

    /// Searches for draining connections if it is time, and ends those whose deadline has passed. `gone` are the
    /// addresses that belong to no endpoint of the cluster.
    pub fn search_drains(&mut self, gone: &BTreeSet<IpAddr>, now: Instant) -> Option<DrainCount> {
        let tables = self.tables.as_ref()?;
        if !self.drains.left(gone, now).is_zero() {
            return None;
        }
        Some(self.drains.search(&mut self.kernel, tables, gone, now))
    }

    /// Deletes both tables. Returns the families that had one, or why a table may still exist.
    pub fn cleanup(&mut self) -> Vec<Result<Family, KernelError>> {
        self.forget();
        let families = Family::BOTH.into_iter();
        let deleted = families.filter_map(|family| match self.kernel.delete(family) {
            Ok(true) => Some(Ok(family)),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        });
        deleted.collect()
    }

    /// Forgets what the tables contain.
    pub(super) fn forget(&mut self) {
        self.shadow = None;
        self.left = None;
        self.in_step = false;
    }

    /// The kernel.
    pub fn kernel(&mut self) -> &mut K {
        &mut self.kernel
    }

    /// Writes the differences between the kernel and these tables.
    fn write(
        &mut self,
        mut tables: Tables,
        touched: Option<Touched>,
        options: ReconcileOptions,
    ) -> TablesOutcome {
        let mut outcome = TablesOutcome::default();
        let complete = touched.is_none();
        self.commit_differences(&mut tables, touched, options, &mut outcome);
        if outcome.in_doubt {
            self.discard_shadow();
        }
        self.purge(&tables, &mut outcome);
        // Only after all writes: before, the next datagram would create the same flow again (S-128).
        if options.may_remove && self.shadow.is_some() {
            outcome.flows = self.flows.clean(&mut self.kernel, &tables, options.now);
        }
        outcome.fallbacks.clone_from(&tables.fallbacks);
        outcome.truncated.clone_from(&tables.truncated);
        self.in_step = outcome.is_success()
            && outcome.left_alone.is_empty()
            && options.may_remove
            && (complete || self.in_step);
        self.tables = Some(tables);
        outcome
    }

    fn commit_differences(
        &mut self,
        tables: &mut Tables,
        mut touched: Option<Touched>,
        options: ReconcileOptions,
        outcome: &mut TablesOutcome,
    ) {
        // The shadow of drift that is left alone shows the state before it, but the plan may change that.
        if self.drift.leaves_alone() {
            self.discard_shadow();
        }
        let mut fresh = self.shadow.is_none();
        if fresh && !self.read(tables, outcome) {
            return;
        }
        let mut families = BTreeSet::from(Family::BOTH);
        loop {
            let Some(shadow) = &self.shadow else { return };
            let touched_parts = touched.as_ref();
            let mut parts = touched_parts.map(|touched| by_family(tables.diff_of(shadow, touched)));
            let everything = touched.is_none() && families.len() == Family::BOTH.len();
            if everything {
                self.retries.begin();
            }
            let commit = |family: &Family| {
                let work = match &mut parts {
                    Some(parts) => Work::Part(parts.remove(family).unwrap_or_default()),
                    None => Work::Everything,
                };
                let is_stale = self.commit_family(*family, work, tables, options, fresh, outcome);
                is_stale.then_some(*family)
            };
            let stale: BTreeSet<_> = families.iter().filter_map(commit).collect();
            if everything {
                self.retries.finish();
            }
            if stale.is_empty() {
                return;
            }
            // Another program changed these tables, so they are read and compared again, once.
            self.discard_shadow();
            if !self.read(tables, outcome) {
                return;
            }
            (families, touched, fresh) = (stale, None, true);
        }
    }

    /// Reads the tables. Returns false if that failed.
    fn read(&mut self, tables: &Tables, outcome: &mut TablesOutcome) -> bool {
        let read = self.kernel.read();
        heartbeat::beat();
        match read {
            Ok(found) => {
                let shadow = match self.left.take() {
                    Some(left) => self.drift.judge(left, found, tables),
                    None => found,
                };
                self.shadow = Some(shadow);
                // A packet may have remembered a backend in the instant in which it left.
                let sticky = tables.families.iter().filter(|(_, table)| {
                    let mut frontends = table.frontends.values();
                    frontends.any(|frontend| frontend.affinity_seconds().is_some())
                });
                self.purges.extend(sticky.map(|(family, _)| *family));
                true
            }
            Err(error) => {
                outcome.fail(&error, None, Family::BOTH);
                false
            }
        }
    }

    /// Removes clients that stay with former backends. Those of a missing table are gone.
    fn purge(&mut self, tables: &Tables, outcome: &mut TablesOutcome) {
        for family in self.purges.clone() {
            match self.kernel.purge_affinity(family, tables) {
                Ok(purged) => {
                    outcome.purged += purged;
                    self.purges.remove(&family);
                }
                Err(error) => outcome.fail(&error, None, [family]),
            }
            heartbeat::beat();
        }
    }
}
