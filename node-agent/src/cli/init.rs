//! `portolan-agent init`.

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use portolan_plan::{Dataplane, NodeEntry, NodePlan, Protocol};
use portolan_reconcile::{Facts, HostNetwork, SysctlOp, sysctl_is_enough, sysctls};
use tracing::warn;

use super::{DeviceArguments, StateArguments};
use crate::kernel::KernelError;
use crate::kernel::linux::{
    Links, Loaded, MODULES, load_module, machine, printed_value, read_sysctl, write_sysctl,
};
use crate::saved::SavedPlan;

/// Without this module, bridged packets bypass the iptables rules, and the `net.bridge.*` settings do not exist.
const BRIDGES: &str = "br_netfilter";

/// The module of the nftables dataplane.
const TABLES: &str = "nf_tables";
/// Those of the expressions in its rules.
const EXPRESSIONS: [&str; 12] = [
    "nft_chain_nat",
    "nft_ct",
    "nft_fib",
    "nft_fib_ipv4",
    "nft_fib_ipv6",
    "nft_hash",
    "nft_masq",
    "nft_nat",
    "nft_numgen",
    "nft_reject",
    "nft_reject_ipv4",
    "nft_reject_ipv6",
];

/// Maximum number of schedulers of Services whose modules are loaded: more than kernels have.
const MAX_SCHEDULERS: usize = 16;

/// Arguments of `portolan-agent init`.
#[derive(Debug, Args)]
pub(super) struct Init {
    #[command(flatten)]
    device: DeviceArguments,
    #[command(flatten)]
    state: StateArguments,
}

impl Init {
    pub(super) fn execute(self) -> anyhow::Result<()> {
        let plan = self.plan();
        let mut node = NodeEntry::clone(&plan.node().cloned().unwrap_or_default());
        let mut report = Report::default();
        node.settings.dataplane = match node.settings.dataplane {
            Dataplane::Ipvs => load_for_ipvs(&plan, &node.settings.scheduler, &mut report),
            Dataplane::Nftables => load_for_tables(&mut report),
        };
        let network = Links::open()?.observe(&self.device.name(Some(&node.settings)))?;
        let host = HostNetwork {
            machine: machine::read(&self.state.state_dir),
            ..network.host
        };
        let wanted = sysctls(&node, &host, &node_ports(&plan, &host));
        if wanted.keys().any(|name| name.starts_with("net.bridge.")) {
            report.add("module", BRIDGES, load(BRIDGES));
        }
        for (name, value) in wanted {
            report.add("setting", &name, set(&name, &value, &self.state.state_dir));
        }
        report.print()
    }

    /// The saved plan of this node, as far as it can be read.
    fn plan(&self) -> NodePlan {
        let saved = SavedPlan::new(&self.state.state_dir, "").read_of_any_node();
        let saved = saved.unwrap_or_else(|problem| {
            warn!(%problem, "the saved plan cannot be read; continuing with the default settings");
            None
        });
        saved.map(|(plan, _)| plan).unwrap_or_default()
    }
}

/// Loads the modules of the IPVS dataplane. If the kernel lacks one, but has nf_tables, that is no failure: the settings may
/// ask for the other dataplane, and the agent reports it if they do not. Returns the dataplane that is possible.
fn load_for_ipvs(plan: &NodePlan, scheduler: &Arc<str>, report: &mut Report) -> Dataplane {
    let of_settings = format!("ip_vs_{scheduler}");
    let modules = MODULES.into_iter().chain([&*of_settings]);
    let loaded: Vec<_> = modules.map(|module| (module, load(module))).collect();
    let is_complete = loaded.iter().all(|(_, loaded)| loaded.is_ok());
    if is_complete || load(TABLES).is_err() {
        for (module, loaded) in loaded {
            report.add("module", module, loaded);
        }
        load_for_services(plan, scheduler, report);
        return Dataplane::Ipvs;
    }
    for (module, loaded) in loaded {
        let missing = "missing; only the nftables dataplane is possible (settings.dataplane)";
        let loaded = loaded.unwrap_or_else(|_| missing.into());
        report.add("module", module, Ok(loaded));
    }
    load_for_tables(report)
}

/// Loads the modules of the nftables dataplane. The kernel loads those of expressions on demand, but each of them delays
/// the first tables. Their names differ between kernels, so a missing one is no failure.
fn load_for_tables(report: &mut Report) -> Dataplane {
    for module in ["nf_conntrack", "nf_conntrack_netlink", TABLES] {
        report.add("module", module, load(module));
    }
    for module in EXPRESSIONS {
        let loaded = load(module).unwrap_or_else(|_| "no such module".into());
        report.add("module", module, Ok(loaded));
    }
    Dataplane::Nftables
}

/// Loads the modules of the schedulers that Services ask for. A missing one is no failure: these Services use the
/// settings' scheduler. Some modules can only be loaded here, before IPVS needs them (ADR 18), so deleting the agent's
/// pod is enough after a package with modules was installed.
fn load_for_services(plan: &NodePlan, of_settings: &Arc<str>, report: &mut Report) {
    let asked = plan.heads().filter_map(|(_, head)| head.scheduler.as_ref());
    let asked: BTreeSet<_> = asked.filter(|name| *name != of_settings).collect();
    for name in asked.into_iter().take(MAX_SCHEDULERS) {
        let module = format!("ip_vs_{name}");
        let missing = "missing; its Services use the settings' scheduler";
        let loaded = load(&module).unwrap_or_else(|_| missing.into());
        report.add("module", &module, Ok(loaded));
    }
}

/// Loads a module. Returns a description of its present and previous state.
fn load(module: &str) -> Result<String, KernelError> {
    let description = match load_module(module)? {
        Loaded::Before => "already loaded",
        Loaded::Now => "loaded now",
        Loaded::BuiltIn => "built in",
    };
    Ok(description.into())
}

/// The node ports of a plan.
fn node_ports(plan: &NodePlan, host: &HostNetwork) -> BTreeSet<(Protocol, u16)> {
    Facts::new(plan, host).map_or_else(BTreeSet::new, |facts| facts.node_ports)
}

/// Writes a setting unless its value suffices. Returns a description of the present and the previous value.
fn set(name: &Arc<str>, value: &Arc<str>, directory: &Path) -> Result<String, KernelError> {
    let found = read_sysctl(name).map(|(_, found)| found);
    if let Some(found) = &found
        && sysctl_is_enough(name, found, value)
    {
        return Ok(format!("is {}", printed_value(found)));
    }
    let (name, value) = (name.clone(), value.clone());
    let description = match &found {
        Some(found) => format!("set to {value}, was {}", printed_value(found)),
        None => format!("set to {value}"),
    };
    write_sysctl(&SysctlOp { name, value }, directory)?;
    Ok(description)
}

/// The outcome of each step, one line per step.
#[derive(Debug, Default)]
struct Report {
    lines: Vec<(&'static str, String, String)>,
    failures: Vec<String>,
}

impl Report {
    fn add(&mut self, kind: &'static str, name: &str, done: Result<String, KernelError>) {
        let outcome = done.unwrap_or_else(|error| {
            self.failures.push(error.to_string());
            "FAILED, see below".into()
        });
        self.lines.push((kind, name.into(), outcome));
    }

    fn print(self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        let colour = out.is_terminal();
        let width = self.lines.iter().map(|(_, name, _)| name.len()).max();
        let width = width.unwrap_or(0);
        for (kind, name, outcome) in &self.lines {
            let red = colour && outcome.starts_with("FAILED");
            let (begin, end) = if red {
                ("\x1b[31m", "\x1b[0m")
            } else {
                ("", "")
            };
            writeln!(out, "{kind:<7}  {name:<width$}  {begin}{outcome}{end}")
                .context("write to standard output")?;
        }
        if !self.failures.is_empty() {
            let count = self.failures.len();
            bail!("{count} failed:\n  {}", self.failures.join("\n  "));
        }
        Ok(())
    }
}
