//! What is gathered about a node: plain values, each found or with the reason why it was not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use portolan_plan::{Family, NodeEntry, NodePlan};
use portolan_reconcile::{
    Desired, Network, ObservedSet, SetId, VirtualServer, VirtualServerKey, sysctls,
};

use crate::kernel::linux::{Tables, Variant};
use crate::saved::Origin;

/// Something that was looked for: what it is, or why nobody knows.
pub type Looked<T> = Result<T, String>;

/// Everything that is known about a node.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The node's time.
    pub now: SystemTime,
    /// The node's name, if somebody said it.
    pub node: Option<String>,
    /// Whether this process may administer the network (`CAP_NET_ADMIN`).
    pub privileged: Looked<bool>,
    /// The state directory, and the disk that it is on; `None` if the directory is not there.
    pub state: (PathBuf, Looked<Option<Disk>>),
    /// The plan on disk; `None` if there is none.
    pub plan: Looked<Option<(NodePlan, Origin)>>,
    /// The virtual servers on record as ours; `None` without a record.
    pub record: Looked<Option<BTreeSet<VirtualServerKey>>>,
    /// The modules that this node needs, schedulers of its plan among them.
    pub modules: BTreeMap<String, Module>,
    /// What IPVS holds.
    pub servers: Looked<BTreeMap<VirtualServerKey, VirtualServer>>,
    /// Address sets.
    pub sets: Looked<Sets>,
    /// Links, addresses and routes.
    pub network: Looked<Network>,
    /// Our device's name.
    pub device: String,
    /// Kernel settings by the names that [`Facts::wanted_sysctls`] has, and a few more; those that the
    /// kernel does not have are left out.
    pub sysctls: BTreeMap<Arc<str>, Arc<str>>,
    /// All rules of iptables.
    pub tables: Looked<Tables>,
    /// What `nft list tables` says.
    pub nft_tables: Looked<String>,
    /// How many connections are tracked.
    pub tracked: Looked<Tracked>,
    /// The logarithm of the size of IPVS's table of connections.
    pub connection_table_bits: Looked<u32>,
    /// The controller that was named, and whether it lets us connect.
    pub controller: Option<(String, Result<(), Unreached>)>,
}

/// Why there is no way to a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreached {
    /// Nobody answers.
    NoWay(String),
    /// Who answers is not believed.
    Distrusted(String),
}

/// A disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// Whether this process may write to the directory.
    pub writable: bool,
    /// Its size in bytes.
    pub size: u64,
    /// How many bytes of it are free.
    pub free: u64,
}

/// Whether the kernel has a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Module {
    /// It is loaded, or a part of this kernel.
    There,
    /// It is not loaded, but on this node's disk.
    Loadable,
    /// This kernel does not have it.
    Missing,
    /// It does not show, and nobody here knows which modules this kernel has.
    Unknown,
}

/// Address sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sets {
    /// Names of all, those of others, too.
    pub names: Vec<String>,
    /// Ours, with their entries.
    pub ours: BTreeMap<SetId, ObservedSet>,
}

/// How many connections are tracked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tracked {
    /// Now.
    pub count: u64,
    /// At most.
    pub most: u64,
}

impl Facts {
    /// What the plan says of this node.
    pub fn node_entry(&self) -> Option<&Arc<NodeEntry>> {
        let (plan, _) = self.plan.as_ref().ok()?.as_ref()?;
        plan.node()
    }

    /// The same, or what an agent goes by before it has a plan.
    pub fn node_or_default(&self) -> Arc<NodeEntry> {
        self.node_entry().cloned().unwrap_or_default()
    }

    /// What the kernel should hold; `None` without a plan or without knowing the network.
    pub fn desired(&self) -> Option<Desired> {
        let (plan, _) = self.plan.as_ref().ok()?.as_ref()?;
        Desired::new(plan, &self.network.as_ref().ok()?.host)
    }

    /// The kernel settings that this node needs, by its plan or the defaults.
    pub fn wanted_sysctls(&self) -> BTreeMap<Arc<str>, Arc<str>> {
        let network = self.network.as_ref();
        network.map_or_else(
            |_| BTreeMap::new(),
            |network| sysctls(&self.node_or_default(), &network.host),
        )
    }

    /// A kernel setting as it is.
    pub fn sysctl(&self, name: &str) -> Option<&str> {
        self.sysctls.get(name).map(|value| &**value)
    }

    /// Everything that is loaded into iptables and can be read, by variant and family.
    pub fn rules(&self) -> impl Iterator<Item = (Variant, Family, &str)> {
        let dumps = self.tables.iter().flat_map(|tables| &tables.dumps);
        dumps.filter_map(|dump| Some((dump.variant, dump.family, dump.text.as_deref().ok()?)))
    }
}

/// The setting that says how strictly an interface takes only what comes by the way it would go.
pub fn reverse_path(interface: &str) -> Arc<str> {
    format!("net/ipv4/conf/{interface}/rp_filter").into()
}

pub use crate::kernel::IPV6_FORWARDING;

/// The setting that says whether IPVS counts rates.
pub const RUN_ESTIMATION: &str = "net.ipv4.vs.run_estimation";
