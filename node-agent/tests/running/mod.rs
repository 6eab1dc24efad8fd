//! A programmer that runs on a model kernel, for tests of what it does.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use portolan_agent::health::Health;
use portolan_agent::kernel::SharedModel;
use portolan_agent::programmer::{Applied, FlowCounters, Programmer};
use portolan_agent::record::Record;
use portolan_agent::slot::PlanSlot;
use portolan_plan::{Change, EntryHash, PlanDocument, PlanHash, StagedChanges};
use portolan_reconcile::HostAddress;
use tokio::sync::watch;

/// What does not come in this time does not come.
const LIMIT: Duration = Duration::from_secs(20);

pub(crate) fn document() -> PlanDocument {
    serde_json::from_str(include_str!("../plans/node-a.json")).unwrap()
}

pub(crate) fn address(text: &str) -> HostAddress {
    HostAddress::on("eth0", text.parse().unwrap())
}

/// A programmer at work on a model kernel.
pub(crate) struct Running {
    pub(crate) kernel: SharedModel,
    pub(crate) slot: Arc<PlanSlot>,
    applied: watch::Receiver<Applied>,
    draining: watch::Receiver<BTreeSet<IpAddr>>,
    flow_counters: watch::Receiver<FlowCounters>,
    thread: JoinHandle<()>,
}

impl Running {
    pub(crate) fn start(kernel: SharedModel, state: &Path) -> Self {
        Self::start_with(kernel, state, Arc::default())
    }

    /// The same, which tells `health` of its passes.
    pub(crate) fn start_with(kernel: SharedModel, state: &Path, health: Arc<Health>) -> Self {
        let addresses = ["192.168.50.1/24", "fd00:50::1/64"];
        kernel.lock().state.host.addresses = addresses.map(address).into();
        let slot = Arc::new(PlanSlot::default());
        let (send, applied) = watch::channel(Applied::default());
        let record = Record::open(state).unwrap();
        let (tell, draining) = watch::channel(BTreeSet::new());
        let programmer = Programmer::new(kernel.clone(), slot.clone(), record, send, tell, health);
        let flow_counters = programmer.flow_counters();
        let thread = std::thread::spawn(move || programmer.run());
        Self {
            kernel,
            slot,
            applied,
            draining,
            flow_counters,
            thread,
        }
    }

    /// Gives it a plan as the stream would, the first whole and others by what differs, and waits for
    /// what came of it.
    pub(crate) fn program(&self, document: PlanDocument) -> Applied {
        let generation = self.commit(document);
        self.wait(|applied| applied.generation >= generation)
    }

    /// The same, and waits for nothing.
    pub(crate) fn commit(&self, document: PlanDocument) -> u64 {
        let plan = document.into_plan().unwrap();
        let (held, mut staged) = self.slot.peek(|held| {
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
        self.slot.commit(staged, PlanHash::default()).unwrap()
    }

    pub(crate) fn wait(&self, holds: impl Fn(&Applied) -> bool) -> Applied {
        let started = Instant::now();
        loop {
            let applied = self.applied.borrow().clone();
            if holds(&applied) {
                return applied;
            }
            assert!(started.elapsed() < LIMIT, "this did not come: {applied:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What came of passes, from now on.
    pub(crate) fn applied(&self) -> watch::Receiver<Applied> {
        self.applied.clone()
    }

    /// Waits until the model kernel is so.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&SharedModel) -> bool) {
        let started = Instant::now();
        while !holds(&self.kernel) {
            assert!(started.elapsed() < LIMIT, "this did not come: {what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The addresses that are told to drain.
    pub(crate) fn draining(&self) -> BTreeSet<IpAddr> {
        self.draining.borrow().clone()
    }

    /// Waits until nothing drains any more.
    pub(crate) fn until_drained(&self) {
        self.until("nothing drains", |_| self.draining().is_empty());
    }

    /// What was done about stale UDP flows.
    pub(crate) fn flow_counters(&self) -> FlowCounters {
        self.flow_counters.borrow().clone()
    }

    pub(crate) fn stop(self) -> SharedModel {
        self.slot.stop();
        self.thread.join().unwrap();
        self.kernel
    }
}
