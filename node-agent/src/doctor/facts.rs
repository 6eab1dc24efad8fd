//! Facts about a node: plain values, or the reason why a value could not be read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use portolan_plan::{Family, NodeEntry, NodePlan};
use portolan_reconcile::nftables::ObservedTables;
use portolan_reconcile::{
    Desired, Network, ObservedSet, SetId, VirtualServer, VirtualServerKey, sysctls,
};

use crate::kernel::linux::{Tables, Variant};
use crate::saved::Origin;

/// A fact, or the reason why it could not be read.
pub type Fact<T> = Result<T, String>;

/// All gathered facts about a node.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The node's system time.
    pub now: SystemTime,
    /// The node's name, if given on the command line.
    pub node: Option<String>,
    /// Whether this process may administer the network (`CAP_NET_ADMIN`).
    pub privileged: Fact<bool>,
    /// The state directory and its disk; `None` if the directory does not exist.
    pub state: (PathBuf, Fact<Option<Disk>>),
    /// The saved plan; `None` if there is none.
    pub plan: Fact<Option<(NodePlan, Origin)>>,
    /// The virtual servers recorded as owned by the agent; `None` without a record.
    pub record: Fact<Option<BTreeSet<VirtualServerKey>>>,
    /// The kernel modules that this node needs, including the schedulers of its plan.
    pub modules: BTreeMap<String, Module>,
    /// The virtual servers in IPVS.
    pub servers: Fact<BTreeMap<VirtualServerKey, VirtualServer>>,
    /// Address sets.
    pub sets: Fact<Sets>,
    /// The agent's tables of nftables; empty if there are none.
    pub own_tables: Fact<ObservedTables>,
    /// Links, addresses and routes.
    pub network: Fact<Network>,
    /// Name of the agent's dummy device.
    pub device: String,
    /// The kernel settings in [`Facts::wanted_sysctls`] and a few more; settings unknown to the kernel are absent.
    pub sysctls: BTreeMap<Arc<str>, Arc<str>>,
    /// All iptables rules.
    pub tables: Fact<Tables>,
    /// Output of `nft list tables`.
    pub nft_tables: Fact<String>,
    /// Output of `nft --terse list ruleset`: all rules, without the elements of sets.
    pub nft_rules: Fact<String>,
    /// Programs that manage the network of the host.
    pub network_managers: NetworkManagers,
    /// Size of the connection tracking table.
    pub tracked: Fact<Tracked>,
    /// Size of the IPVS connection table as a power of two.
    pub connection_table_bits: Fact<u32>,
    /// The controller given on the command line, and the result of connecting to it.
    pub controller: Option<(String, Result<(), ConnectError>)>,
}

/// Why connecting to the controller failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectError {
    /// There is no connection.
    NoWay(String),
    /// The peer could not be authenticated.
    Distrusted(String),
}

/// The configuration of programs that manage the network, of each that runs here as far as this process can see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkManagers {
    /// systemd-networkd: `networkd.conf` and its fragments.
    pub networkd: Option<String>,
    /// NetworkManager: `NetworkManager.conf` and its fragments.
    pub network_manager: Option<String>,
}

/// A disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// Whether this process may write to the directory.
    pub writable: bool,
    /// Its size in bytes.
    pub size: u64,
    /// Free space in bytes.
    pub free: u64,
}

/// State of a kernel module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Module {
    /// Loaded or built in.
    There,
    /// Not loaded, but available on this node's disk.
    Loadable,
    /// Not available for this kernel.
    Missing,
    /// Not loaded, and the list of this kernel's modules is not readable.
    Unknown,
}

/// Address sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sets {
    /// Names of all sets, including those of other programs.
    pub names: Vec<String>,
    /// The agent's sets with their entries.
    pub own: BTreeMap<SetId, ObservedSet>,
}

/// Number of tracked connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tracked {
    /// The current number.
    pub count: u64,
    /// The maximum.
    pub most: u64,
}

impl Facts {
    /// The plan's entry for this node.
    pub fn node_entry(&self) -> Option<&Arc<NodeEntry>> {
        let (plan, _) = self.plan.as_ref().ok()?.as_ref()?;
        plan.node()
    }

    /// The plan's entry for this node, or the defaults that an agent uses before it has a plan.
    pub fn node_or_default(&self) -> Arc<NodeEntry> {
        self.node_entry().cloned().unwrap_or_default()
    }

    /// The desired kernel state; `None` if the plan or the network facts are missing.
    pub fn desired(&self) -> Option<Desired> {
        let (plan, _) = self.plan.as_ref().ok()?.as_ref()?;
        Desired::new(plan, &self.network.as_ref().ok()?.host)
    }

    /// What the plan demands; `None` if the plan or the network facts are missing.
    pub fn demanded(&self) -> Option<portolan_reconcile::Facts> {
        let (plan, _) = self.plan.as_ref().ok()?.as_ref()?;
        portolan_reconcile::Facts::new(plan, &self.network.as_ref().ok()?.host)
    }

    /// The kernel settings that this node needs according to its plan or the defaults.
    pub fn wanted_sysctls(&self) -> BTreeMap<Arc<str>, Arc<str>> {
        let network = self.network.as_ref();
        network.map_or_else(
            |_| BTreeMap::new(),
            |network| {
                let ports = self.demanded().map(|facts| facts.node_ports);
                sysctls(
                    &self.node_or_default(),
                    &network.host,
                    &ports.unwrap_or_default(),
                )
            },
        )
    }

    /// The present value of a kernel setting.
    pub fn sysctl(&self, name: &str) -> Option<&str> {
        self.sysctls.get(name).map(|value| &**value)
    }

    /// The readable iptables dumps, by variant and family.
    pub fn rules(&self) -> impl Iterator<Item = (Variant, Family, &str)> {
        let dumps = self.tables.iter().flat_map(|tables| &tables.dumps);
        dumps.filter_map(|dump| Some((dump.variant, dump.family, dump.text.as_deref().ok()?)))
    }
}

/// The setting for reverse path filtering on an interface.
pub fn reverse_path(interface: &str) -> Arc<str> {
    format!("net/ipv4/conf/{interface}/rp_filter").into()
}

pub use crate::kernel::IPV6_FORWARDING;

/// The setting that enables the IPVS rate estimation.
pub const RUN_ESTIMATION: &str = "net.ipv4.vs.run_estimation";
