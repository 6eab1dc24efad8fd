//! Counters that are updated at each event. Gauges are read at scrape time ([`crate::metrics`]), so they cannot
//! differ from the state that they describe.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use portolan_plan::{EntryKey, Family, StagedChanges};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family as Labelled, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets, linear_buckets};
use prometheus_client::registry::Registry;

use super::{Moment, PassReport};
use crate::labels::FamilyLabel;
use crate::open_files::AcceptErrors;

/// Maximum number of trigger times that are kept for pending changes; the newest are dropped.
const MAX_PENDING_TRIGGERS: usize = 64;

/// Maximum number of pending batches that are tracked; the stream has one in flight.
const MAX_PENDING_BATCHES: usize = 4;

/// Number of Services and endpoint lists that a batch changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Services.
    pub services: u64,
    /// Lists of IPv4 endpoints.
    pub ipv4: u64,
    /// Lists of IPv6 endpoints.
    pub ipv6: u64,
    /// The trigger times of the changes, as far as known, since 1970.
    pub triggered: Vec<Duration>,
}

impl Changes {
    /// Counts the changes of a batch.
    pub fn of(staged: &StagedChanges) -> Self {
        let mut changes = Self::default();
        for key in staged.keys() {
            match key {
                EntryKey::Head(_) => changes.services += 1,
                EntryKey::List(list) => match list.family {
                    Family::Ipv4 => changes.ipv4 += 1,
                    Family::Ipv6 => changes.ipv6 += 1,
                },
                EntryKey::Node | EntryKey::Local(_) | EntryKey::Other(_) => {}
            }
        }
        changes
    }

    /// Sets the trigger times.
    #[must_use]
    pub fn since(self, triggered: Vec<Duration>) -> Self {
        Self { triggered, ..self }
    }

    /// Endpoint lists of a family.
    pub(crate) fn endpoints(&self, family: Family) -> u64 {
        match family {
            Family::Ipv4 => self.ipv4,
            Family::Ipv6 => self.ipv6,
        }
    }

    fn and(mut self, more: &Self) -> Self {
        self.services += more.services;
        self.ipv4 += more.ipv4;
        self.ipv6 += more.ipv6;
        self.triggered.extend_from_slice(&more.triggered);
        self.triggered.truncate(MAX_PENDING_TRIGGERS);
        self
    }
}

/// Label for the HTTP status code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: u16,
}

/// Creates histograms with kube-proxy's buckets: 15 buckets from 1 ms, each twice the previous one.
#[derive(Debug, Clone, Copy)]
struct Buckets;

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(0.001, 2.0, 15))
    }
}

/// Creates the histogram of the network programming duration with kube-proxy's buckets.
#[derive(Debug, Clone, Copy)]
struct ProgrammingBuckets;

impl MetricConstructor<Histogram> for ProgrammingBuckets {
    fn new_metric(&self) -> Histogram {
        let quarters = linear_buckets(0.25, 0.25, 2);
        let seconds = linear_buckets(1.0, 1.0, 59);
        let minutes = linear_buckets(60.0, 5.0, 12).chain(linear_buckets(120.0, 30.0, 7));
        Histogram::new(quarters.chain(seconds).chain(minutes))
    }
}

type Seconds = Gauge<f64, std::sync::atomic::AtomicU64>;

/// All counters.
#[derive(Debug)]
pub struct Counters {
    healthz: Labelled<CodeLabel, Counter>,
    livez: Labelled<CodeLabel, Counter>,
    durations: Labelled<FamilyLabel, Histogram, Buckets>,
    last: Labelled<FamilyLabel, Seconds>,
    last_queued: Labelled<FamilyLabel, Seconds>,
    services: Labelled<FamilyLabel, Counter>,
    endpoints: Labelled<FamilyLabel, Counter>,
    unloaded_rules: Labelled<FamilyLabel, Counter>,
    programming: Labelled<FamilyLabel, Histogram, ProgrammingBuckets>,
    operations: Counter,
    failures: Counter,
    /// Connections that could not be accepted.
    pub(crate) accept_errors: AcceptErrors,
    waiting: Mutex<PendingChanges>,
}

/// Changes that were received, but not yet included in a pass.
#[derive(Debug, Default)]
struct PendingChanges {
    changes: BTreeMap<u64, Changes>,
    /// The plan generation of the last pass, and the families with failures.
    passed: (u64, BTreeSet<Family>),
}

impl Default for Counters {
    /// Creates all known series at start, so that the first event appears as an increase.
    fn default() -> Self {
        let counters = Self {
            healthz: Labelled::default(),
            livez: Labelled::default(),
            durations: Labelled::new_with_constructor(Buckets),
            last: Labelled::default(),
            last_queued: Labelled::default(),
            services: Labelled::default(),
            endpoints: Labelled::default(),
            unloaded_rules: Labelled::default(),
            programming: Labelled::new_with_constructor(ProgrammingBuckets),
            operations: Counter::default(),
            failures: Counter::default(),
            accept_errors: AcceptErrors::default(),
            waiting: Mutex::default(),
        };
        for code in [200, 503].map(|code| CodeLabel { code }) {
            drop(counters.healthz.get_or_create(&code));
            drop(counters.livez.get_or_create(&code));
        }
        for family in Family::BOTH.map(FamilyLabel::from) {
            drop(counters.durations.get_or_create(&family));
            drop(counters.last.get_or_create(&family));
            drop(counters.last_queued.get_or_create(&family));
            drop(counters.services.get_or_create(&family));
            drop(counters.endpoints.get_or_create(&family));
            drop(counters.unloaded_rules.get_or_create(&family));
            drop(counters.programming.get_or_create(&family));
        }
        counters
    }
}

impl Counters {
    pub(crate) fn healthz(&self, code: u16) {
        self.healthz.get_or_create(&CodeLabel { code }).inc();
    }

    pub(crate) fn livez(&self, code: u16) {
        self.livez.get_or_create(&CodeLabel { code }).inc();
    }

    pub(crate) fn queued(&self, generation: u64, changes: Changes, now: Moment) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // The pass with this change may have ended before this call.
        let passed = generation <= waiting.passed.0;
        for family in Family::BOTH {
            let label = family.into();
            if !passed || waiting.passed.1.contains(&family) {
                self.last_queued.get_or_create(&label).set(seconds(now));
            }
            self.services.get_or_create(&label).inc_by(changes.services);
            let endpoints = changes.endpoints(family);
            self.endpoints.get_or_create(&label).inc_by(endpoints);
        }
        if passed {
            self.programmed(&changes, &waiting.passed.1, now);
            return;
        }
        let waiting = &mut waiting.changes;
        let mut changes = changes;
        if waiting.len() >= MAX_PENDING_BATCHES
            && let Some((_, last)) = waiting.pop_last()
        {
            changes = last.and(&changes);
        }
        waiting.insert(generation, changes);
    }

    pub(crate) fn passed(&self, pass: &PassReport, now: Moment) {
        for family in Family::BOTH {
            let label = family.into();
            let took = pass.took.as_secs_f64();
            self.durations.get_or_create(&label).observe(took);
            if !pass.failed_families.contains(&family) {
                self.last.get_or_create(&label).set(seconds(now));
            }
            let unloaded = pass.unloaded_rules.get(&family).copied();
            let rules = self.unloaded_rules.get_or_create(&label);
            rules.inc_by(unloaded.unwrap_or(0));
        }
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        self.operations.inc_by(count(pass.operations));
        self.failures.inc_by(count(pass.failed));
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let still = waiting.changes.split_off(&(pass.generation + 1));
        let done = std::mem::replace(&mut waiting.changes, still);
        waiting.passed = (pass.generation, pass.failed_families.clone());
        drop(waiting);
        for changes in done.values() {
            self.programmed(changes, &pass.failed_families, now);
        }
    }

    /// Observes the time from the trigger of changes until now for the families without failures (S-187).
    fn programmed(&self, changes: &Changes, failed: &BTreeSet<Family>, now: Moment) {
        let sound = Family::BOTH
            .into_iter()
            .filter(|family| !failed.contains(family));
        let sound: Vec<FamilyLabel> = sound.map(FamilyLabel::from).collect();
        for triggered in &changes.triggered {
            // The clock of the other machine may be ahead of this one.
            let took = (seconds(now) - triggered.as_secs_f64()).max(0.0);
            for family in &sound {
                self.programming.get_or_create(family).observe(took);
            }
        }
    }

    /// Changes that were received, but not yet included in a pass.
    pub(crate) fn waiting(&self) -> Changes {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = waiting.changes.values();
        waiting.fold(Changes::default(), Changes::and)
    }

    /// Registers all counters.
    #[rustfmt::skip]
    pub(crate) fn register(&self, registry: &mut Registry) {
        let proxy = registry.sub_registry_with_prefix("kubeproxy");
        proxy.register("proxy_healthz", "Responses of /healthz by status code", self.healthz.clone());
        proxy.register("proxy_livez", "Responses of /livez by status code", self.livez.clone());
        proxy.register("network_programming_duration_seconds", "Time from the change of a pod or Service, as recorded in its EndpointSlice, until it took effect on this node", self.programming.clone());
        let sync = proxy.sub_registry_with_prefix("sync_proxy_rules");
        sync.register("duration_seconds", "Duration of passes, each of which compares the kernel with the plan and programs the differences", self.durations.clone());
        sync.register("last_timestamp_seconds", "End of the last pass without a failure in the family", self.last.clone());
        sync.register("last_queued_timestamp_seconds", "Arrival of the last change of the plan", self.last_queued.clone());
        sync.register("service_changes", "Changes of Services in the plan", self.services.clone());
        sync.register("endpoint_changes", "Changes of endpoint lists in the plan", self.endpoints.clone());
        sync.register("iptables_restore_failures", "Failures to load iptables rules", self.unloaded_rules.clone());
        let own = registry.sub_registry_with_prefix("portolan");
        own.register("accept_errors", "Connections that could not be accepted: too many open files, or no memory", self.accept_errors.count());
        own.register("operations", "Kernel operations performed", self.operations.clone());
        own.register("operation_failures", "Kernel operations that failed, or were skipped after another failure", self.failures.clone());
    }
}

fn seconds(now: Moment) -> f64 {
    now.wall.as_duration().as_secs_f64()
}
