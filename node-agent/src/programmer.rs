//! Reconciles the kernel with the latest plan: observe, compare, write, verify, retry.
//!
//! One blocking thread runs this. It caches the kernel state in a shadow, which it updates with every successful
//! operation. After a failure, and once in every sync period, it reads the kernel again. After a change of the
//! node's network it immediately reads links, addresses and routes, and nothing else.

mod applied;
mod chunks;
mod drain;
mod drift;
mod flows;
mod log;
mod observe;
mod outcome;
mod pace;
mod part;
mod schedule;
mod steps;
mod tables;
mod traffic;
mod troubles;
mod write;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_plan::{Family, NodePlan};
use portolan_reconcile::{Ipv6Off, Network, Observed, Owned, Shared};
use tokio::sync::watch;
use tracing::warn;

pub use self::applied::Applied;
use self::drain::Drains;
use self::drift::DriftWatch;
pub use self::flows::{FlowCounter, FlowCounters};
use self::log::{PassReason, log_pass};
use self::observe::{PartialRead, ReadParams, ReadResult};
use self::outcome::Outcome;
use self::pace::Pace;
use self::part::{Job, TablesWork, Whole, Work};
use self::schedule::{Pass, Schedule};
pub use self::steps::Step;
use self::tables::TablesSide;
pub use self::troubles::{Trouble, Troubles};
use crate::drains::Drain;
use crate::health::{Health, PassReport};
use crate::kernel::{Kernel, KernelError, LockWait};
use crate::plan_watch::{PlanWatch, Source, Woken};
use crate::record::Record;

/// How often a held iptables lock is tried while rules wait for it.
const LOCK_INTERVAL: Duration = Duration::from_millis(200);

/// Reconciles a kernel with the plan.
#[derive(Debug)]
pub struct Programmer<K: Kernel> {
    kernel: K,
    plans: Arc<PlanWatch>,
    record: Record,
    /// The virtual servers that may be modified; `None` before the first plan if there is no record.
    owned: Option<Owned>,
    /// Whether the record on disk is older than `owned`.
    unrecorded: bool,
    shadow: Option<Observed>,
    /// The partial result of a read of the kernel that has not finished.
    partial_read: Option<PartialRead>,
    /// The network of the last discarded shadow.
    last_network: Option<Network>,
    /// The device in both of these.
    device: Option<Arc<str>>,
    /// Devices of earlier settings that still exist.
    retired: BTreeSet<Arc<str>>,
    drains: Drains,
    drift: DriftWatch,
    applied: watch::Sender<Applied>,
    health: Arc<Health>,
    flows: flows::Flows,
    /// Desired state that Services share; `None` unless the shadow equals the desired state of the last plan.
    shared: Option<Shared>,
    /// Origin of the last plan.
    source: Source,
    pace: Pace,
    /// Schedulers that Services ask for and the kernel lacks.
    lacking: BTreeSet<Arc<str>>,
    /// What is wrong with Services after the last pass.
    troubles: Arc<Troubles>,
    /// Traffic of Services, if enabled.
    traffic: Option<traffic::TrafficReader>,
    /// The last logged reason why the node has no IPv6.
    ipv6_off: Option<Ipv6Off>,
    /// The addresses of load balancers in the plan, maybe with some that it had before: routes to them matter.
    balancers: BTreeSet<IpAddr>,
    /// The nftables dataplane.
    tables: TablesSide<K::Tables>,
}

impl<K: Kernel> Programmer<K> {
    /// A programmer that publishes the result of each pass in `applied` and `health`, and the addresses of draining
    /// backends in `draining`.
    pub fn new(
        kernel: K,
        plans: Arc<PlanWatch>,
        record: Record,
        applied: watch::Sender<Applied>,
        draining: watch::Sender<BTreeSet<IpAddr>>,
        health: Arc<Health>,
    ) -> Self {
        let owned = record.read().unwrap_or_else(|problem| {
            warn!(
                %problem,
                "the ownership record cannot be read; the agent owns the virtual servers that its sets admit, and \
                 those at addresses that only Services use"
            );
            None
        });
        let owned = owned.map(|recorded| Owned {
            recorded,
            ..Owned::default()
        });
        Self {
            kernel,
            plans,
            record,
            owned,
            unrecorded: false,
            shadow: None,
            partial_read: None,
            last_network: None,
            device: None,
            retired: BTreeSet::new(),
            drains: Drains::new(draining),
            drift: DriftWatch::default(),
            applied,
            health,
            flows: flows::Flows::default(),
            shared: None,
            source: Source::default(),
            pace: Pace::default(),
            lacking: BTreeSet::new(),
            troubles: Arc::default(),
            traffic: None,
            ipv6_off: None,
            balancers: BTreeSet::new(),
            tables: TablesSide::default(),
        }
    }

    /// Subscribes to the counters of the cleanup of stale UDP flows.
    pub fn flow_counters(&self) -> watch::Receiver<FlowCounters> {
        self.flows.counters()
    }

    /// Subscribes to the list of draining real servers.
    pub fn drains(&self) -> watch::Receiver<Vec<Drain>> {
        self.drains.listed()
    }

    /// Runs until the watch is stopped. The kernel state stays (S-199).
    pub fn run(mut self) {
        self.plans.heartbeat().adopt();
        let mut schedule = Schedule::default();
        let mut failed = false;
        let mut unfinished = false;
        loop {
            // A newer plan comes first, then postponed work; neither waits.
            let now = Instant::now();
            let lock = self.kernel.lock_wait();
            let wait = if unfinished {
                Duration::ZERO
            } else {
                let left = schedule.left(now).min(self.drains.left(now));
                let left = left.min(self.tables.left(&self.plans.gone(), now, failed));
                left.min(lock_left(lock))
            };
            let pace = &self.pace;
            let pause = |plan: &NodePlan| pace.left(plan, Instant::now());
            let woken = self.plans.wait_paced(wait, pause);
            if woken == Woken::Stopped {
                return;
            }
            // Without its connections, the IPVS dataplane can be removed.
            let drained = self.count_drains() && self.tables.is_active();
            self.search_table_drains();
            // A sequence of changes must not postpone the read of the kernel.
            let released = [lock, self.kernel.lock_wait()].contains(&LockWait::Released);
            let late = schedule.is_due(Instant::now()) || released;
            // The shadow of unrepaired drift shows the state before the drift, but the new plan may change it.
            if late || (woken == Woken::Changed && self.drift.leaves_alone()) {
                self.discard_shadow();
            }
            // If the timeout was only for counting connections, or the read finds no change, no pass is needed.
            let is_needed = match woken {
                // A wake-up that only tries the lock is not one for work that waits after a failure.
                Woken::TimedOut if lock == LockWait::Held => drained,
                Woken::TimedOut => unfinished || drained || self.is_work_left(),
                Woken::Disturbed => self.is_changed() || drained,
                _ => true,
            };
            if !(late || is_needed) {
                continue;
            }
            let why = match woken {
                Woken::Changed => PassReason::Changed,
                _ if failed => PassReason::Failed,
                _ if unfinished => PassReason::Postponed,
                Woken::Disturbed if !late => PassReason::Disturbed,
                _ => PassReason::Due,
            };
            let reads_all = self.shadow.is_none();
            let pass = self.pass(why);
            failed = pass.failed;
            unfinished = pass.unfinished && !failed;
            schedule.note(Instant::now(), reads_all, pass);
        }
    }

    /// Whether a pass has work without any event.
    fn is_work_left(&self) -> bool {
        self.shadow.is_none() || self.tables.is_retry_due(Instant::now())
    }

    /// Whether a disturbance changed something that matters.
    fn is_changed(&mut self) -> bool {
        let network = self.network_changed();
        let rules = self.rules_changed();
        self.tables.is_disturbed() || network || rules
    }

    /// Reconciles the kernel with the plan, and publishes the result.
    fn pass(&mut self, why: PassReason) -> Pass {
        let mut outcome = Outcome::default();
        let started = outcome.steps.began();
        let params = self.plans.peek(ReadParams::of);
        let period = params.as_ref().map_or(Duration::MAX, |p| p.period);
        let read = outcome.step("read network", |outcome| {
            let refresh = |params| self.refresh_shadow(params, outcome);
            params.as_ref().map_or(ReadResult::MaybeChanged, refresh)
        });
        let in_step =
            why == PassReason::Changed && read == ReadResult::Unchanged && outcome.failed == 0;
        let Job {
            generation,
            hash,
            facts,
            trace,
            work,
        } = outcome.step("desired state", |_| self.take(in_step));
        self.finish_full_read(work.desired(), &mut outcome);
        // Nothing is written before the first complete plan (S-183).
        if generation == 0 {
            return Pass::nothing(period, started.elapsed());
        }
        let (seen, before) = {
            let applied = self.applied.borrow();
            (applied.generation, applied.hash)
        };
        let is_new = generation > seen;
        let why = if is_new { PassReason::Changed } else { why };
        if is_new && self.source == Source::Controller {
            self.pace.begin(started);
        }
        let services = work.services();
        self.reconcile(work, &mut outcome);
        let failed = outcome.failed > 0;
        let took = started.elapsed();
        self.report_settings(&mut outcome);
        if let Some(ReadParams { node, .. }) = params {
            self.passed(outcome.passed(generation, node, facts, took));
        }
        let applied = Applied {
            generation,
            hash: if failed { before } else { hash },
            services,
            operations: outcome.operations,
            took,
            failures: outcome.failures(),
            failed: outcome.failed,
            troubles: self.troubles.clone(),
            drift: self.drift.counts(),
            tables_drift: self.tables.drift(),
            began: Some(started),
            steps: outcome.steps.done().into(),
        };
        log_pass(&applied, outcome.reason(why), self.source, trace);
        // Pending scheduler changes do not delay the acknowledgement, because the next plan would wait for all of
        // them. Virtual servers and their backends are already applied.
        self.applied.send_replace(applied);
        Pass {
            failed,
            unfinished: outcome.unfinished,
            period,
            took: started.elapsed(),
        }
    }

    fn report_settings(&mut self, outcome: &mut Outcome) {
        let mut unwritten = std::mem::take(&mut outcome.unwritten);
        unwritten.extend(self.ipv6_forwarding_warning());
        unwritten.extend(self.ports_warning());
        self.health.set_unwritten(unwritten);
    }

    fn passed(&self, passed: PassReport) {
        let complete = self.source != Source::BootCritical;
        self.health.passed(PassReport { complete, ..passed });
    }

    /// Carries out the work, and assigns the results to Services.
    fn reconcile(&mut self, mut work: Work, outcome: &mut Outcome) {
        // Without a shadow nothing is compared, so nothing is known about any Service.
        let covered = work.take_covered().filter(|_| self.shadow.is_some());
        self.carry_out_work(work, outcome);
        if let Some(covered) = covered {
            self.note_troubles(covered, outcome);
        }
        if outcome.failed > 0 || outcome.unfinished {
            self.shared = None;
        }
    }

    fn carry_out_work(&mut self, work: Work, outcome: &mut Outcome) {
        match work {
            Work::Part(_, part) => self.follow(*part, outcome),
            Work::TablesPart(_, facts) => self.follow_tables(&facts.0, &facts.1, outcome),
            Work::Whole(Some(whole)) => self.write_whole(whole, outcome),
            Work::Whole(None) => {
                let reason =
                    "it has no entry for this node; is the controller newer than the agent?";
                outcome.fail(&KernelError::new("read the plan", reason), &Family::BOTH);
            }
        }
    }

    /// The dataplane that serves Services is complete before the other one takes no more connections. As long as it is
    /// not, the other one goes on serving, and follows the plan.
    fn write_whole(&mut self, whole: Whole, outcome: &mut Outcome) {
        let Whole { desired, tables } = whole;
        match tables {
            TablesWork::Unknown => self.write(*desired, outcome),
            TablesWork::Serve(facts) => {
                let is_ready = self.write_tables(&facts, outcome);
                let desired = match self.ipvs_goes_on(&facts) {
                    Some(ipvs) if !is_ready => ipvs,
                    _ => *desired,
                };
                drop(facts);
                self.write(desired, outcome);
            }
            TablesWork::HandOver { ipvs_marks, facts } => {
                self.write(*desired, outcome);
                if outcome.failed == 0 {
                    self.remove_tables(ipvs_marks, outcome);
                } else if let Some(facts) = facts {
                    self.write_tables(&facts, outcome);
                }
            }
        }
    }
}

/// Time until the iptables lock is tried again, if rules could not be loaded because of it.
fn lock_left(lock: LockWait) -> Duration {
    match lock {
        LockWait::None => Duration::MAX,
        LockWait::Held => LOCK_INTERVAL,
        LockWait::Released => Duration::ZERO,
    }
}
