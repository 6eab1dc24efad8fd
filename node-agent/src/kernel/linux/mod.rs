//! The Linux kernel: the only module that opens netlink sockets, writes kernel settings or starts tools. Blocking,
//! for one thread at a time.

mod conntrack;
mod dump;
mod events;
mod generation;
mod iptables;
mod ipvs;
mod link;
pub mod machine;
mod modules;
mod rules;
mod sent;
mod servers;
mod sets;
mod settings_watch;
mod sysctl;
mod tables;
mod tool;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portolan_plan::{Dataplane, Family};

use portolan_reconcile::rules::ObservedRules;
use portolan_reconcile::{
    Connections, Desired, Flow, Network, Observed, Op, OpKind, VirtualServerKey,
};

use tracing::info;

use self::ipvs::Ipvs;
use super::{Kernel, KernelError, LockWait, StaleFlows, TablesKernel as _};
use crate::traffic::Traffic;

pub use conntrack::{Conntrack, flows_in};
pub use dump::{Dump, Tables, nft};
pub use events::Events;
pub use iptables::{IptablesChoice, Variant};
pub use link::Links;
pub use modules::{
    Loaded, MODULES, is_built_in as is_module_built_in, is_loaded as is_module_loaded,
    load as load_module, loaded_schedulers,
};
pub use rules::{Reading, Rules};
pub use sent::{Datagram, Part, Sent};
pub use servers::Servers;
pub use sets::Sets;
pub use settings_watch::{KnownSettings, SettingsWatch};
pub use sysctl::{
    apply as write_sysctl, printed_value, read as read_sysctl, restore as restore_sysctl,
};
pub use tables::{NftTables, TableChanges};

/// The module of nf_tables.
const NF_TABLES: &str = "nf_tables";

/// The kernel, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct LinuxKernel {
    /// What the IPVS dataplane needs, or what is missing for it.
    ipvs: Result<Ipvs, Missing>,
    link: Links,
    conntrack: Conntrack,
    /// Changes of the tables of nftables by other programs.
    table_changes: TableChanges,
    /// The directory of the record of written settings.
    state_dir: PathBuf,
    settings: KnownSettings,
}

/// Everything that is missing for programming this node.
#[derive(Debug, Clone)]
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

impl Missing {
    /// The error of an action that needs it.
    fn error(&self, action: &(impl fmt::Display + ?Sized)) -> KernelError {
        let reasons: Vec<_> = self.errors.iter().map(ToString::to_string).collect();
        KernelError::new(action, &reasons.join("; "))
    }
}

impl LinuxKernel {
    /// Opens the kernel's sockets in the network namespace of the calling thread, and searches for the tools. The
    /// directory has the record of written kernel settings.
    ///
    /// # Errors
    /// [`Missing`] lists everything that is missing, with a remedy for each. If only the IPVS dataplane lacks something,
    /// and the kernel has nf_tables, that is no error, but each use of IPVS is.
    pub fn open(iptables: IptablesChoice, state_dir: &Path) -> Result<Self, Missing> {
        let ipvs = Ipvs::open(iptables).map_err(|errors| Missing { errors });
        let (link, conntrack) = (Links::open(), Conntrack::open());
        let changes = TableChanges::default();
        let has_nft = || NftTables::open(changes.clone()).is_ok();
        match (link, conntrack) {
            (Ok(link), Ok(conntrack)) if ipvs.is_ok() || has_nft() => {
                if let Err(missing) = &ipvs {
                    info!(%missing, "only the nftables dataplane is possible on this node");
                }
                Ok(Self {
                    ipvs,
                    link,
                    conntrack,
                    table_changes: changes,
                    state_dir: state_dir.to_owned(),
                    settings: KnownSettings::default(),
                })
            }
            (link, conntrack) => {
                let mut errors = ipvs.err().map_or_else(Vec::new, |missing| missing.errors);
                errors.extend([link.err(), conntrack.err()].into_iter().flatten());
                Err(Missing { errors })
            }
        }
    }

    /// Whether the IPVS dataplane is possible.
    ///
    /// # Errors
    /// What is missing for it.
    pub fn require_ipvs(&self) -> Result<(), Missing> {
        self.ipvs.as_ref().map(drop).map_err(Clone::clone)
    }

    /// Enables the traffic counters of virtual servers, which are updated with each [`Kernel::observe`].
    pub fn count_traffic(&mut self) {
        self.ipvs
            .iter_mut()
            .for_each(|ipvs| ipvs.servers.count_traffic());
    }

    /// The changes of the tables of nftables by other programs, for [`Events::of_tables`].
    pub fn table_changes(&self) -> TableChanges {
        self.table_changes.clone()
    }

    /// The kernel settings of the last reading, for [`SettingsWatch::start`].
    pub fn known_settings(&self) -> KnownSettings {
        self.settings.clone()
    }

    /// The netlink port of the rtnetlink socket, which the kernel includes in events that this socket caused.
    pub fn port(&self) -> u32 {
        self.link.port()
    }

    /// Applies operations of one kind.
    fn apply_run(&mut self, kind: OpKind, run: &[Op]) -> Vec<Result<(), KernelError>> {
        match (kind, &mut self.ipvs) {
            (OpKind::Sysctl, _) => {
                let ops = only(run, Op::sysctl).into_iter();
                ops.map(|op| {
                    let result = sysctl::apply(op, &self.state_dir);
                    self.settings.refresh(&op.name);
                    result
                })
                .collect()
            }
            (OpKind::Link, _) => self.link.apply(&only(run, Op::link)),
            (kind, Ok(ipvs)) => ipvs.apply(kind, run),
            (_, Err(missing)) => run.iter().map(|op| Err(missing.error(op))).collect(),
        }
    }
}

/// Selects the operations of one part of the kernel.
pub fn only<T>(run: &[Op], part: impl Fn(&Op) -> Option<&T>) -> Vec<&T> {
    run.iter().filter_map(part).collect()
}

impl Kernel for LinuxKernel {
    type Tables = NftTables;

    fn open_tables(&mut self) -> Result<NftTables, KernelError> {
        NftTables::open(self.table_changes.clone())
    }

    fn may_have_tables(&mut self) -> bool {
        // If that is unknown, asking may load it, but tables that stay would capture packets.
        if !(is_module_loaded(NF_TABLES) || is_module_built_in(NF_TABLES).unwrap_or(true)) {
            return false;
        }
        let mut tables = self.open_tables();
        Family::BOTH.into_iter().any(|family| {
            let layout = tables.as_mut().map(|tables| tables.layout(family));
            !matches!(layout, Ok(Ok(None)))
        })
    }

    fn network(&mut self, device: &str) -> Result<Network, KernelError> {
        let mut network = self.link.observe(device)?;
        network.host.machine = machine::read(&self.state_dir);
        Ok(network)
    }

    fn sysctls(&mut self, names: &BTreeSet<Arc<str>>) -> BTreeMap<Arc<str>, Arc<str>> {
        let settings = names.iter().filter_map(sysctl::read).collect();
        self.settings.note(&settings);
        settings
    }

    fn has_scheduler(&mut self, name: &str) -> bool {
        let ipvs = self.ipvs.as_mut();
        ipvs.is_ok_and(|ipvs| ipvs.servers.has_scheduler(name))
    }

    fn prepare_observe(&mut self) {
        self.ipvs.iter_mut().for_each(Ipvs::begin_reading);
    }

    fn observe(
        &mut self,
        network: Network,
        sysctls: BTreeMap<Arc<str>, Arc<str>>,
        wanted: Option<&Desired>,
    ) -> Result<Observed, KernelError> {
        let is_needed = wanted.is_none_or(|wanted| wanted.dataplane == Dataplane::Ipvs);
        match &mut self.ipvs {
            Ok(ipvs) => ipvs.observe(network, sysctls, wanted),
            Err(missing) if is_needed => Err(missing.error("read the state of IPVS")),
            Err(_) => {
                let mut observed = Observed {
                    sysctls,
                    ..Observed::default()
                };
                observed.set_network(network);
                Ok(observed)
            }
        }
    }

    fn rules(&mut self) -> Vec<(Family, Result<ObservedRules, KernelError>)> {
        self.ipvs.as_mut().map_or_else(|_| Vec::new(), Ipvs::rules)
    }

    fn lock_wait(&mut self) -> LockWait {
        let ipvs = self.ipvs.as_mut();
        ipvs.map_or(LockWait::None, Ipvs::lock_wait)
    }

    fn traffic(&mut self) -> Vec<(VirtualServerKey, Traffic)> {
        let ipvs = self.ipvs.as_mut();
        ipvs.map_or_else(|_| Vec::new(), |ipvs| ipvs.servers.traffic())
    }

    fn connections(&mut self, servers: &[VirtualServerKey]) -> Result<Connections, KernelError> {
        match &mut self.ipvs {
            Ok(ipvs) => ipvs.servers.connections(servers),
            Err(_) if servers.is_empty() => Ok(Connections::new()),
            Err(missing) => Err(missing.error("count connections of IPVS")),
        }
    }

    fn prepare(&mut self, ops: &[Op]) {
        if let Ok(ipvs) = &mut self.ipvs {
            ipvs.rules.prepare(&only(ops, Op::rules));
        }
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
