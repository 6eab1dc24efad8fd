//! The Linux kernel: the only module that opens netlink sockets, writes kernel settings or starts tools. Blocking,
//! for one thread.

mod conntrack;
mod dump;
mod events;
mod generation;
mod iptables;
mod link;
pub mod machine;
mod modules;
mod rules;
mod sent;
mod servers;
mod sets;
mod sysctl;
mod tables;
mod tool;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use portolan_plan::Family;
use portolan_reconcile::rules::ObservedRules;
use portolan_reconcile::{
    Connections, Desired, Flow, Network, Observed, Op, OpKind, VirtualServerKey,
};

use super::{Kernel, KernelError, StaleFlows};
use crate::traffic::Traffic;

pub use conntrack::{Conntrack, flows_in};
pub use dump::{Dump, Tables, nft_tables};
pub use events::Events;
pub use iptables::{IptablesChoice, Variant};
pub use link::Links;
pub use modules::{
    Loaded, MODULES, is_loaded as is_module_loaded, load as load_module, loaded_schedulers,
};
pub use rules::{Reading, Rules};
pub use sent::{Datagram, Part, Sent};
pub use servers::Servers;
pub use sets::Sets;
pub use sysctl::{
    apply as write_sysctl, printed_value, read as read_sysctl, restore as restore_sysctl,
};
pub use tables::{NftTables, TableChanges};

/// The kernel, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct LinuxKernel {
    servers: Servers,
    sets: Sets,
    link: Links,
    rules: Rules,
    /// A read of rules that was begun in advance.
    reading: Option<Reading>,
    conntrack: Conntrack,
}

/// Everything that is missing for programming this node.
#[derive(Debug)]
pub struct Missing {
    errors: Vec<KernelError>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this node cannot be programmed:")?;
        self.errors
            .iter()
            .try_for_each(|error| write!(f, "\n  {error}"))
    }
}

impl std::error::Error for Missing {}

impl LinuxKernel {
    /// Opens the kernel's sockets in the network namespace of the calling thread, and searches for the tools.
    ///
    /// # Errors
    /// [`Missing`] lists everything that is missing, with a remedy for each.
    pub fn open(iptables: IptablesChoice) -> Result<Self, Missing> {
        let servers = Servers::open();
        let sets = Sets::open();
        let link = Links::open();
        let rules = Rules::find(iptables);
        let conntrack = Conntrack::open();
        match (servers, sets, link, rules, conntrack) {
            (Ok(servers), Ok(sets), Ok(link), Ok(rules), Ok(conntrack)) => {
                rules.log_variant();
                Ok(Self {
                    servers,
                    sets,
                    link,
                    rules,
                    reading: None,
                    conntrack,
                })
            }
            (servers, sets, link, rules, conntrack) => {
                let errors = [
                    servers.err(),
                    sets.err(),
                    link.err(),
                    rules.err(),
                    conntrack.err(),
                ];
                Err(Missing {
                    errors: errors.into_iter().flatten().collect(),
                })
            }
        }
    }

    /// Enables the traffic counters of virtual servers, which are updated with each [`Kernel::observe`].
    pub fn count_traffic(&mut self) {
        self.servers.count_traffic();
    }

    /// The netlink port of the rtnetlink socket, which the kernel includes in events that this socket caused.
    pub fn port(&self) -> u32 {
        self.link.port()
    }

    /// Applies operations of one kind.
    fn apply_run(&mut self, kind: OpKind, run: &[Op]) -> Vec<Result<(), KernelError>> {
        match kind {
            OpKind::Sysctl => only(run, Op::sysctl)
                .into_iter()
                .map(sysctl::apply)
                .collect(),
            OpKind::Link => self.link.apply(&only(run, Op::link)),
            OpKind::Set => self.sets.apply(&only(run, Op::set)),
            OpKind::Rules => self.rules.apply(&only(run, Op::rules)),
            OpKind::Scheduler => {
                let ops = only(run, Op::scheduler).into_iter();
                ops.map(|op| self.servers.load_scheduler(op)).collect()
            }
            OpKind::Ipvs => self.servers.apply(&only(run, Op::ipvs)),
        }
    }
}

/// Selects the operations of one part of the kernel.
pub fn only<T>(run: &[Op], part: impl Fn(&Op) -> Option<&T>) -> Vec<&T> {
    run.iter().filter_map(part).collect()
}

impl Kernel for LinuxKernel {
    fn network(&mut self, device: &str) -> Result<Network, KernelError> {
        let mut network = self.link.observe(device)?;
        network.host.machine = machine::read();
        Ok(network)
    }

    fn sysctls(&mut self, names: &BTreeSet<Arc<str>>) -> BTreeMap<Arc<str>, Arc<str>> {
        names.iter().filter_map(sysctl::read).collect()
    }

    fn has_scheduler(&mut self, name: &str) -> bool {
        self.servers.has_scheduler(name)
    }

    fn prepare_observe(&mut self) {
        // An earlier read that was not used is outdated.
        self.reading.take().into_iter().for_each(Reading::end);
        self.reading = Some(self.rules.begin_reading());
    }

    fn observe(
        &mut self,
        network: Network,
        sysctls: BTreeMap<Arc<str>, Arc<str>>,
        wanted: Option<&Desired>,
    ) -> Result<Observed, KernelError> {
        let (mut rules, mut unread_rules) = (BTreeMap::new(), BTreeMap::new());
        let reading = match self.reading.take() {
            Some(reading) => reading,
            None => self.rules.begin_reading(),
        };
        let virtual_servers = self.servers.observe(wanted);
        let timeouts = self.servers.timeouts();
        let sets = self.sets.observe();
        for (family, found) in self.rules.observe(reading) {
            match found {
                Ok(found) => drop(rules.insert(family, found)),
                // The other family, and everything that does not depend on rules, continues.
                Err(error) => drop(unread_rules.insert(family, error.reason)),
            }
        }
        Ok(Observed {
            device_up: network.device_up,
            routes: network.routes,
            policy: network.policy,
            host: network.host,
            virtual_servers: virtual_servers?,
            loaded_schedulers: BTreeSet::new(),
            sets: sets?,
            leftover_sets: self.sets.leftovers()?,
            rules,
            unread_rules,
            sysctls,
            timeouts: timeouts?,
        })
    }

    fn rules(&mut self) -> Vec<(Family, Result<ObservedRules, KernelError>)> {
        let reading = self.rules.begin_reading();
        self.rules.observe(reading).into()
    }

    fn traffic(&mut self) -> Vec<(VirtualServerKey, Traffic)> {
        self.servers.traffic()
    }

    fn connections(&mut self, servers: &[VirtualServerKey]) -> Result<Connections, KernelError> {
        self.servers.connections(servers)
    }

    fn prepare(&mut self, ops: &[Op]) {
        self.rules.prepare(&only(ops, Op::rules));
    }

    fn apply(&mut self, ops: &[Op]) -> Vec<Result<(), KernelError>> {
        // Consecutive operations of one kind are sent together: many messages in one send.
        let runs = ops.chunk_by(|left, right| left.kind() == right.kind());
        runs.flat_map(|run| run.first().map(|op| self.apply_run(op.kind(), run)))
            .flatten()
            .collect()
    }

    fn stale_flows(
        &mut self,
        family: Family,
        is_stale: &dyn Fn(&Flow) -> bool,
    ) -> Result<StaleFlows, KernelError> {
        self.conntrack.stale(family, is_stale)
    }

    fn forget_flows(&mut self, flows: &[Flow]) -> Vec<Result<(), KernelError>> {
        self.conntrack.forget(flows)
    }
}
