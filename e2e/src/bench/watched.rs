//! A kernel with counters: the requests of a programmer, and how long the kernel takes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use portolan_agent::kernel::linux::{NftTables, Sent};
use portolan_agent::kernel::{Kernel, KernelError, LinuxKernel, StaleFlows};
use portolan_plan::Family;
use portolan_reconcile::{
    Connections, Desired, Flow, Network, Observed, Op, OpKind, VirtualServerKey,
};

/// Requests to a kernel since the last plan.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// How often links, addresses and routes were read.
    pub looks: u64,
    /// How often virtual servers, sets and rules were read: all of them each time.
    pub dumps: u64,
    /// Of how many virtual servers connections were counted, once for each time.
    pub counted: u64,
    /// How often the UDP flows of a family were read.
    pub flow_looks: u64,
    /// How many UDP flows were deleted.
    pub flows_deleted: u64,
    /// Operations by the part of the kernel that they are for. Those for schedulers are questions, which the kernel
    /// refuses on purpose.
    pub operations: BTreeMap<OpKind, u64>,
    /// How long those operations took.
    pub writing: BTreeMap<OpKind, Duration>,
    /// How long reading took, settings too.
    pub reading: Duration,
    /// Netlink messages to IPVS and to sets.
    pub sent: Sent,
}

impl Asked {
    /// How many operations there were of a kind.
    #[must_use]
    pub fn of(&self, kind: OpKind) -> u64 {
        self.operations.get(&kind).copied().unwrap_or(0)
    }

    /// Everything that was written: messages to IPVS and to sets, and operations on links, routes,
    /// rules and settings.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.sent.writes + self.others()
    }

    /// Every message: what was sent to IPVS and to sets, the other operations, and one at least for
    /// each time something was read.
    #[must_use]
    pub fn messages(&self) -> u64 {
        let flows = self.flow_looks + self.flows_deleted;
        self.sent.messages + self.others() + self.looks + self.dumps + flows
    }

    fn others(&self) -> u64 {
        [OpKind::Link, OpKind::Rules, OpKind::Sysctl]
            .iter()
            .map(|kind| self.of(*kind))
            .sum()
    }
}

/// Reads the counters.
#[derive(Debug, Clone, Default)]
pub(super) struct Watch(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    asked: Asked,
    /// The counts when counting began.
    before: Sent,
    now: Sent,
}

impl Watch {
    /// Takes the counts since the previous call, and restarts the counters.
    #[must_use]
    pub(super) fn take(&self) -> Asked {
        let mut inner = self.lock();
        let (before, now) = (inner.before, inner.now);
        inner.before = now;
        Asked {
            sent: Sent {
                messages: now.messages - before.messages,
                writes: now.writes - before.writes,
                bytes: now.bytes - before.bytes,
            },
            ..std::mem::take(&mut inner.asked)
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Numbers that a panicking thread left are as good as any.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is done with the tables of nftables once they are opened.
pub(super) type Opened = Box<dyn FnOnce(&mut NftTables) + Send>;

/// A kernel with its counters.
pub(super) struct Watched {
    kernel: LinuxKernel,
    watch: Watch,
    opened: Option<Opened>,
}

impl Watched {
    /// Watches from now on; what opening the kernel took is not counted.
    #[must_use]
    pub(super) fn new(kernel: LinuxKernel, watch: Watch, opened: Option<Opened>) -> Self {
        let sent = kernel.sent();
        {
            let mut inner = watch.lock();
            (inner.before, inner.now) = (sent, sent);
        }
        Self {
            kernel,
            watch,
            opened,
        }
    }

    /// Does something and notes how long it took and what was sent.
    fn timed<T>(
        &mut self,
        work: impl FnOnce(&mut LinuxKernel) -> T,
        note: impl FnOnce(&mut Asked, Duration),
    ) -> T {
        let start = Instant::now();
        let result = work(&mut self.kernel);
        let took = start.elapsed();
        let mut inner = self.watch.lock();
        inner.now = self.kernel.sent();
        note(&mut inner.asked, took);
        result
    }
}

impl Kernel for Watched {
    type Tables = NftTables;

    fn open_tables(&mut self) -> Result<NftTables, KernelError> {
        let mut tables = self.kernel.open_tables()?;
        if let Some(opened) = self.opened.take() {
            opened(&mut tables);
        }
        Ok(tables)
    }

    fn may_have_tables(&mut self) -> bool {
        self.kernel.may_have_tables()
    }

    fn network(&mut self, device: &str) -> Result<Network, KernelError> {
        self.timed(
            |kernel| kernel.network(device),
            |asked, took| {
                asked.looks += 1;
                asked.reading += took;
            },
        )
    }

    fn sysctls(&mut self, names: &BTreeSet<Arc<str>>) -> BTreeMap<Arc<str>, Arc<str>> {
        self.timed(
            |kernel| kernel.sysctls(names),
            |asked, took| asked.reading += took,
        )
    }

    fn has_scheduler(&mut self, name: &str) -> bool {
        self.timed(
            |kernel| kernel.has_scheduler(name),
            |asked, took| asked.reading += took,
        )
    }

    fn prepare_observe(&mut self) {
        self.timed(LinuxKernel::prepare_observe, |asked, took| {
            asked.reading += took;
        });
    }

    fn observe(
        &mut self,
        network: Network,
        sysctls: BTreeMap<Arc<str>, Arc<str>>,
        wanted: Option<&Desired>,
    ) -> Result<Observed, KernelError> {
        self.timed(
            |kernel| kernel.observe(network, sysctls, wanted),
            |asked, took| {
                asked.dumps += 1;
                asked.reading += took;
            },
        )
    }

    fn connections(&mut self, servers: &[VirtualServerKey]) -> Result<Connections, KernelError> {
        let count = servers.len() as u64;
        self.timed(
            |kernel| kernel.connections(servers),
            |asked, took| {
                asked.counted += count;
                asked.reading += took;
            },
        )
    }

    fn prepare(&mut self, ops: &[Op]) {
        let kind = |op: &Op| op.kind();
        let kind = ops.first().map(kind);
        self.timed(
            |kernel| kernel.prepare(ops),
            |asked, took| {
                if let Some(kind) = kind {
                    *asked.writing.entry(kind).or_default() += took;
                }
            },
        );
    }

    fn apply(&mut self, ops: &[Op]) -> Vec<Result<(), KernelError>> {
        // The runs that the kernel makes of them itself, so that it sends the same.
        let runs = ops.chunk_by(|left, right| left.kind() == right.kind());
        let mut results = Vec::with_capacity(ops.len());
        for run in runs {
            let Some(kind) = run.first().map(Op::kind) else {
                continue;
            };
            let count = run.len() as u64;
            results.extend(self.timed(
                |kernel| kernel.apply(run),
                |asked, took| {
                    *asked.operations.entry(kind).or_default() += count;
                    *asked.writing.entry(kind).or_default() += took;
                },
            ));
        }
        results
    }

    fn stale_flows(
        &mut self,
        family: Family,
        is_stale: &dyn Fn(&Flow) -> bool,
    ) -> Result<StaleFlows, KernelError> {
        self.timed(
            |kernel| kernel.stale_flows(family, is_stale),
            |asked, took| {
                asked.flow_looks += 1;
                asked.reading += took;
            },
        )
    }

    fn forget_flows(&mut self, flows: &[Flow]) -> Vec<Result<(), KernelError>> {
        let count = flows.len() as u64;
        self.timed(
            |kernel| kernel.forget_flows(flows),
            |asked, _| asked.flows_deleted += count,
        )
    }
}
