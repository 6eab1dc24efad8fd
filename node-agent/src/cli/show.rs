//! `portolan-agent show`.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use clap::Args;
use portolan_plan::{NodePlan, ServiceId};
use portolan_reconcile::Desired;
use portolan_reconcile::nftables::ObservedTables;
use tracing::warn;

use super::ask::drains;
use super::{DeviceArguments, Form, StateArguments};
use crate::kernel::{IptablesChoice, Kernel, KernelError, LinuxKernel, TablesKernel as _};
use crate::record::Record;
use crate::saved::{Origin, SavedPlan};
use crate::show::{Found, NO_SUCH_SERVICE, NOTHING, Shown, Style, render};

/// Arguments of `portolan-agent show`.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// Includes virtual servers of other programs.
    #[arg(long)]
    all: bool,
    /// Includes the entries of the agent's sets.
    #[arg(long)]
    sets: bool,
    /// Shows only this Service.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = service)]
    service: Option<ServiceId>,
    /// Repeats every SECONDS (2 if omitted) until interrupted. Default: prints once.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u16).range(1..))]
    watch: Option<u16>,
    #[command(flatten)]
    device: DeviceArguments,
    /// Output format.
    #[arg(
        long,
        short,
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    output: Form,
    #[command(flatten)]
    state: StateArguments,
}

impl Show {
    pub(super) fn execute(self) -> anyhow::Result<()> {
        let mut kernel = LinuxKernel::open(IptablesChoice::Auto, &self.state.state_dir)?;
        loop {
            let text = self.look(&mut kernel)?;
            let mut out = std::io::stdout().lock();
            if self.watch.is_some() && out.is_terminal() {
                // Move the cursor to the top and clear the screen.
                write!(out, "\x1b[H\x1b[J")?;
            }
            write!(out, "{text}")?;
            out.flush()?;
            drop(out);
            let Some(seconds) = self.watch else {
                return Ok(());
            };
            std::thread::sleep(Duration::from_secs(seconds.into()));
        }
    }

    fn look(&self, kernel: &mut LinuxKernel) -> anyhow::Result<String> {
        let plan = self.plan();
        let recorded = Record::existing(&self.state.state_dir).read();
        let recorded = recorded.unwrap_or_else(|problem| {
            warn!(%problem, "the ownership record cannot be read; using only the plan");
            None
        });
        let node = plan.as_ref().and_then(|(plan, _)| plan.node());
        let device = self.device.name(node.map(|node| &node.settings));
        let network = kernel.network(&device)?;
        let desired = plan.as_ref();
        let desired = desired.and_then(|(plan, _)| Desired::new(plan, &network.host));
        let observed = kernel.observe(network, BTreeMap::new(), desired.as_ref())?;
        let servers: Vec<_> = observed.virtual_servers.keys().copied().collect();
        let connections = kernel.connections(&servers)?;
        let tables = tables(kernel)?;
        let shown = Shown::of(&Found {
            observed: &observed,
            tables: tables.as_ref(),
            connections: &connections,
            recorded: &recorded.unwrap_or_default(),
            plan: plan.as_ref().map(|(plan, origin)| (plan, origin)),
            drains: &drains(plan.as_ref().map(|(plan, _)| plan)),
            entries: self.sets,
            service: self.service.as_ref(),
        });
        if self.output == Form::Json {
            let text = serde_json::to_string_pretty(&shown).context("encode the output as JSON")?;
            return Ok(text + "\n");
        }
        let style = Style {
            colour: std::io::stdout().is_terminal(),
            all: self.all,
            nothing: if self.service.is_some() {
                NO_SUCH_SERVICE
            } else {
                NOTHING
            },
        };
        Ok(render(&shown, style, SystemTime::now()))
    }

    fn plan(&self) -> Option<(NodePlan, Origin)> {
        let saved = SavedPlan::new(&self.state.state_dir, "");
        saved.read_of_any_node().unwrap_or_else(|problem| {
            warn!(%problem, "the saved plan cannot be read; showing the kernel state without it");
            None
        })
    }
}

/// The tables of nftables, if there are any.
fn tables(kernel: &mut impl Kernel) -> Result<Option<ObservedTables>, KernelError> {
    if !kernel.may_have_tables() {
        return Ok(None);
    }
    kernel.open_tables()?.read().map(Some)
}

/// Parses `NAMESPACE/NAME`.
fn service(text: &str) -> Result<ServiceId, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok(ServiceId::new(namespace, name))
        }
        _ => Err("write NAMESPACE/NAME, such as default/web".into()),
    }
}
