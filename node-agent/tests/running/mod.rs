//! A programmer that runs on a model kernel, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use portolan_agent::health::Health;
use portolan_agent::kernel::SharedModel;
use portolan_agent::plan_watch::PlanWatch;
use portolan_agent::programmer::{Applied, FlowCounters, Programmer};
use portolan_agent::record::Record;
use portolan_agent::traffic::TrafficTotals;
use portolan_plan::{Change, EntryHash, PlanDocument, PlanHash, StagedChanges};
use portolan_reconcile::HostAddress;
use tokio::sync::watch;

/// Timeout for an expected state.
const LIMIT: Duration = Duration::from_secs(20);

pub(crate) fn document() -> PlanDocument {
    serde_json::from_str(include_str!("../plans/node-a.json")).unwrap()
}

pub(crate) fn address(text: &str) -> HostAddress {
    HostAddress::on("eth0", text.parse().unwrap())
}

/// A running programmer on a model kernel.
pub(crate) struct Running {
    pub(crate) kernel: SharedModel,
    pub(crate) plans: Arc<PlanWatch>,
    applied: watch::Receiver<Applied>,
    draining: watch::Receiver<BTreeSet<IpAddr>>,
    flow_counters: watch::Receiver<FlowCounters>,
    traffic: watch::Receiver<Arc<TrafficTotals>>,
    thread: JoinHandle<()>,
}

impl Running {
    pub(crate) fn start(kernel: SharedModel, state: &Path) -> Self {
        Self::start_with(kernel, state, Arc::default())
    }

    /// Starts a programmer that reports its passes to `health`.
    pub(crate) fn start_with(kernel: SharedModel, state: &Path, health: Arc<Health>) -> Self {
        let addresses = ["192.168.50.1/24", "fd00:50::1/64"];
        kernel.lock().state.host.addresses = addresses.map(address).into();
        let plans = Arc::new(PlanWatch::default());
        let (send, applied) = watch::channel(Applied::default());
        let record = Record::open(state).unwrap();
        let (drains, draining) = watch::channel(BTreeSet::new());
        let mut programmer =
            Programmer::new(kernel.clone(), plans.clone(), record, send, drains, health);
        let flow_counters = programmer.flow_counters();
        let traffic = programmer.traffic(NonZeroU32::MIN);
        let thread = std::thread::spawn(move || programmer.run());
        Self {
            kernel,
            plans,
            applied,
            draining,
            flow_counters,
            traffic,
            thread,
        }
    }

    /// Commits a plan as the stream does, the first one completely and later ones as changes, and waits for the
    /// result.
    pub(crate) fn program(&self, document: PlanDocument) -> Applied {
        let generation = self.commit(document);
        self.wait(|applied| applied.generation >= generation)
    }

    /// Commits a plan without waiting.
    pub(crate) fn commit(&self, document: PlanDocument) -> u64 {
        let plan = document.into_plan().unwrap();
        let (held, mut staged) = self.plans.peek(|held| {
            let staged = if held.is_empty() {
                StagedChanges::snapshot()
            } else {
                StagedChanges::delta()
            };
            (held.clone(), staged)
        });
        let held: BTreeMap<_, _> = held.entries().collect();
        let wanted: BTreeMap<_, _> = plan.entries().collect();
        for (key, entry) in &wanted {
            if held.get(key) != Some(entry) {
                staged.push(Change::Upsert {
                    key: (*key).clone(),
                    hash: EntryHash::default(),
                    entry: Some((*entry).clone()),
                });
            }
        }
        for key in held.keys().filter(|key| !wanted.contains_key(*key)) {
            let key = (*key).clone();
            staged.push(Change::Remove { key });
        }
        self.plans.commit(staged, PlanHash::default()).unwrap()
    }

    pub(crate) fn wait(&self, holds: impl Fn(&Applied) -> bool) -> Applied {
        let started = Instant::now();
        loop {
            let applied = self.applied.borrow().clone();
            if holds(&applied) {
                return applied;
            }
            assert!(started.elapsed() < LIMIT, "timeout: {applied:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Subscribes to the results of passes.
    pub(crate) fn applied(&self) -> watch::Receiver<Applied> {
        self.applied.clone()
    }

    /// Waits until the model kernel has this state.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&SharedModel) -> bool) {
        let started = Instant::now();
        while !holds(&self.kernel) {
            assert!(started.elapsed() < LIMIT, "timeout: {what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The addresses that are published as draining.
    pub(crate) fn draining(&self) -> BTreeSet<IpAddr> {
        self.draining.borrow().clone()
    }

    /// Waits until no real server drains any more.
    pub(crate) fn until_drained(&self) {
        self.until("nothing drains", |_| self.draining().is_empty());
    }

    /// The counters of the cleanup of stale UDP flows.
    pub(crate) fn flow_counters(&self) -> FlowCounters {
        self.flow_counters.borrow().clone()
    }

    /// The traffic of Services; only one has counters of its own.
    pub(crate) fn traffic(&self) -> Arc<TrafficTotals> {
        self.traffic.borrow().clone()
    }

    pub(crate) fn stop(self) -> SharedModel {
        self.plans.stop();
        self.thread.join().unwrap();
        self.kernel
    }
}
