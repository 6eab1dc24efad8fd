//! Gathers facts about the node: the only part of the doctor with I/O, and it only reads. A failure to read is
//! a fact as well, and does not stop the rest.
//!
//! Requests that would make the kernel load a module are avoided. Only the iptables and nft tools may load
//! nf_tables, which any listing of rules does.

mod controller;
mod files;
mod managers;
mod modules;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use portolan_reconcile::nftables::ObservedTables;
use portolan_reconcile::{Network, VirtualServer, VirtualServerKey};

use super::facts::{Fact, Facts, IPV6_FORWARDING, RUN_ESTIMATION, Sets, reverse_path};
use crate::kernel::linux::{
    self, Links, MODULES, NftTables, Servers, TableChanges, Tables, is_module_built_in,
    is_module_loaded, machine, nft, read_sysctl,
};
use crate::kernel::{IptablesChoice, TablesKernel as _};
use crate::receive::Access;
use crate::record::Record;
use crate::saved::SavedPlan;
pub(super) use files::connection_table_bits;

/// What to diagnose.
#[derive(Debug, Clone)]
pub struct GatherOptions {
    /// The state directory.
    pub state_dir: PathBuf,
    /// The node's name.
    pub node: Option<String>,
    /// The agent's dummy device; by default the one in the plan.
    pub device: Option<String>,
    /// A controller that should be reachable.
    pub controller: Option<Access>,
}

/// Gathers all facts about this node.
pub fn gather(place: &GatherOptions) -> Facts {
    let directory = &place.state_dir;
    let mut facts = Facts {
        now: SystemTime::now(),
        node: place.node.clone(),
        privileged: files::may_administer_network(),
        state: (directory.clone(), files::disk(directory)),
        plan: fact(SavedPlan::new(directory, "").read_of_any_node()),
        record: fact(Record::existing(directory).read()),
        modules: BTreeMap::new(),
        servers: servers(),
        sets: sets(),
        own_tables: own_tables(),
        network: Err("not read yet".into()),
        device: String::new(),
        sysctls: BTreeMap::new(),
        tables: fact(Tables::read(IptablesChoice::Auto)),
        nft_tables: fact(nft(&["list", "tables"])),
        nft_rules: fact(nft(&["--terse", "list", "ruleset"])),
        network_managers: managers::read(),
        tracked: files::tracked(),
        connection_table_bits: connection_table_bits(),
        controller: place.controller.as_ref().map(controller::reach),
    };
    let device = place.device.clone();
    let of_plan = || facts.node_or_default().settings.device.to_string();
    facts.device = device.unwrap_or_else(of_plan);
    facts.network = network(&facts.device, directory);
    facts.sysctls = sysctls(&facts);
    facts.modules = modules::read(&needed_modules(&facts));
    facts
}

fn fact<T, E: Display>(result: Result<T, E>) -> Fact<T> {
    result.map_err(|error| error.to_string())
}

fn network(device: &str, directory: &Path) -> Fact<Network> {
    let mut network = fact(Links::open().and_then(|mut links| links.observe(device)))?;
    network.host.machine = machine::read(directory);
    Ok(network)
}

/// A request to IPVS would make the kernel load the module, so this first checks that it is loaded.
fn servers() -> Fact<BTreeMap<VirtualServerKey, VirtualServer>> {
    if !Path::new("/proc/net/ip_vs").exists() {
        return Err("IPVS is not loaded".into());
    }
    fact(Servers::open().and_then(|mut servers| servers.observe(None)))
}

/// As for IPVS, a request would load the module.
fn sets() -> Fact<Sets> {
    if !is_module_loaded("ip_set") {
        return Err("address sets (ip_set) are not loaded".into());
    }
    let read = linux::Sets::open().and_then(|mut sets| {
        Ok(Sets {
            names: sets.names()?,
            own: sets.observe()?,
        })
    });
    fact(read)
}

/// As for IPVS, a request would load the module.
fn own_tables() -> Fact<ObservedTables> {
    let module = "nf_tables";
    if !is_module_loaded(module) && is_module_built_in(module) != Some(true) {
        return Err("nf_tables is not loaded".into());
    }
    fact(NftTables::open(TableChanges::default()).and_then(|mut tables| tables.read()))
}

fn sysctls(facts: &Facts) -> BTreeMap<Arc<str>, Arc<str>> {
    let interfaces = facts.network.iter().flat_map(|net| &net.host.interfaces);
    let reverse = interfaces.map(|interface| reverse_path(&interface.name));
    let more = [
        reverse_path("all"),
        RUN_ESTIMATION.into(),
        IPV6_FORWARDING.into(),
    ];
    let wanted = facts.wanted_sysctls().into_keys();
    let names = wanted.chain(reverse).chain(more);
    names.filter_map(|name| read_sysctl(&name)).collect()
}

/// The required modules, including those of the default scheduler and of schedulers that Services set.
fn needed_modules(facts: &Facts) -> BTreeSet<String> {
    let desired = facts.desired();
    let servers = desired.iter().flat_map(|all| all.virtual_servers.values());
    let schedulers = servers.map(|server| server.scheduler.clone());
    let default = facts.node_or_default().settings.scheduler.clone();
    let schedulers = schedulers
        .chain([default])
        .map(|name| format!("ip_vs_{name}"));
    MODULES
        .map(str::to_owned)
        .into_iter()
        .chain(schedulers)
        .collect()
}
