//! One run of an agent: the real receiver and plan watch. The kernel accepts every plan after a while, or fails on request.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portolan_agent::plan_watch::{PlanWatch, Source, Taken, TakenPlan, Woken};
use portolan_agent::programmer::Applied;
use portolan_agent::receive::{Addresses, Controllers, LinkSender, Receiver, Trust};
use portolan_agent::watermark::{Memory, Remembered};
use portolan_plan::{NodePlan, PlanHash};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use crate::network::{Connections, SimulatedDialer, address, slot};
use crate::objects::node;
use crate::witness::Witness;

/// Minimum time between two writes of the plan to disk, as in agents.
const MIN_WRITE_INTERVAL: Duration = Duration::from_secs(10);
/// Interval at which an agent tries to return to its first controller, in place of minutes. Up to the same time is added.
const RETURN_INTERVAL: Duration = Duration::from_secs(60);

/// The plan on the disk of a node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk(Arc<Mutex<Option<Arc<NodePlan>>>>);

impl Disk {
    fn read(&self) -> Option<Arc<NodePlan>> {
        let plan = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plan.clone()
    }

    fn write(&self, plan: Arc<NodePlan>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(plan);
    }
}

/// The node of an agent: what does not change when the agent restarts.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(crate) number: usize,
    pub(crate) connections: Arc<Connections>,
    pub(crate) controllers: usize,
    pub(crate) witness: Witness,
    pub(crate) disk: Disk,
    pub(crate) watermark: Memory,
    /// The duration of a pass.
    pub(crate) pass: Duration,
}

impl Host {
    /// The controllers that its agent knows.
    fn known(&self) -> Controllers {
        let addresses = (0..self.controllers).map(address).collect();
        Controllers::new(Addresses::Listed(addresses), Trust::Insecure)
            .with_return_interval(RETURN_INTERVAL)
    }

    /// The first controller of its agent.
    pub(crate) fn first_controller(&self) -> Option<usize> {
        let first = self.known().choose(&node(self.number), 0).ok()?;
        slot(&first.address)
    }
}

/// A running agent. Dropping it is a crash.
#[derive(Debug)]
pub(crate) struct Agent {
    plans: Arc<PlanWatch>,
    applied: watch::Receiver<Applied>,
    stalled: watch::Sender<bool>,
    fails: Arc<AtomicBool>,
    wake: Arc<Notify>,
    tasks: [AbortHandle; 2],
}

impl Agent {
    /// Starts the agent of a host with the plan on its disk.
    pub(crate) fn start(host: &Host) -> Self {
        let plans = Arc::new(PlanWatch::default());
        if let Some(plan) = host.disk.read() {
            plans.restore_saved(NodePlan::clone(&plan), Source::Disk);
        }
        let wake: Arc<Notify> = Arc::default();
        wake.notify_one();
        let (done, applied) = watch::channel(Applied::default());
        let (drains, draining) = watch::channel(BTreeSet::new());
        let (stalled, stalls) = watch::channel(false);
        let fails: Arc<AtomicBool> = Arc::default();
        let receiver = Receiver {
            node: node(host.number).into(),
            version: "simulated".into(),
            controllers: host.known(),
            dialer: Arc::new(SimulatedDialer {
                connections: host.connections.clone(),
                agent: host.number,
                arrived: wake.clone(),
            }),
            plans: plans.clone(),
            remembered: Remembered::in_memory(host.watermark.clone()),
            applied: applied.clone(),
            draining,
            health: Arc::default(),
            schedulers: Vec::new,
            link: LinkSender::default(),
        };
        let passes = Passes {
            host: host.clone(),
            plans: plans.clone(),
            stalls,
            fails: fails.clone(),
            wake: wake.clone(),
            done,
            written: None,
            _drains: drains,
        };
        let tasks = [
            tokio::spawn(receiver.run()).abort_handle(),
            tokio::spawn(passes.run()).abort_handle(),
        ];
        Self {
            plans,
            applied,
            stalled,
            fails,
            wake,
            tasks,
        }
    }

    /// Stops passes, or lets them go on.
    pub(crate) fn stall(&self, stalls: bool) {
        self.stalled.send_replace(stalls);
    }

    /// Makes passes fail, or succeed again.
    pub(crate) fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// The hash of the received plan, if it is in force.
    pub(crate) fn in_force(&self) -> Option<PlanHash> {
        let received = self.plans.hash()?;
        (self.applied.borrow().hash == received).then_some(received)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// The thread that programs the kernel, as a task.
struct Passes {
    host: Host,
    plans: Arc<PlanWatch>,
    stalls: watch::Receiver<bool>,
    fails: Arc<AtomicBool>,
    wake: Arc<Notify>,
    done: watch::Sender<Applied>,
    /// The time of the last write to disk.
    written: Option<Instant>,
    /// Nothing drains, but the receiver must not see a closed channel.
    _drains: watch::Sender<BTreeSet<std::net::IpAddr>>,
}

impl Passes {
    async fn run(mut self) {
        loop {
            self.wake.notified().await;
            if self.stalls.wait_for(|stalls| !stalls).await.is_err() {
                return;
            }
            // Also lets the receiver process the message that woke this task.
            sleep(self.host.pass).await;
            self.pass();
        }
    }

    fn pass(&mut self) {
        let before = self.done.borrow().clone();
        let (generation, hash) = if self.plans.wait(Duration::ZERO) == Woken::Changed {
            let taken = self.plans.take();
            self.take(&taken);
            (taken.generation, taken.hash)
        } else if before.failed > 0 {
            let plan = self.plans.plan();
            (before.generation, plan.usable_hash())
        } else {
            return;
        };
        let fails = self.fails.load(Ordering::Relaxed);
        self.done.send_replace(Applied {
            generation,
            hash: if fails { before.hash } else { hash },
            failures: Vec::from_iter(fails.then(|| "add a virtual server: no memory".into())),
            failed: usize::from(fails),
            ..Applied::default()
        });
    }

    fn take(&mut self, taken: &Taken) {
        let (Source::Controller, TakenPlan::Whole(plan)) = (taken.source, &taken.what) else {
            return;
        };
        self.host.witness.took(self.host.number, plan);
        let now = Instant::now();
        let is_due = |written: Instant| now.duration_since(written) >= MIN_WRITE_INTERVAL;
        if self.written.is_none_or(is_due) {
            self.host.disk.write(plan.clone());
            self.written = Some(now);
        }
    }
}
