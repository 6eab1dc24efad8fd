//! `portolan-agent cleanup`.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context as _, bail};
use clap::Args;
use portolan_reconcile::{Owned, cleanup};
use tracing::warn;

use super::{DeviceArguments, StateArguments};
use crate::kernel::{IptablesChoice, Kernel as _, LinuxKernel};
use crate::record::Record;
use crate::saved::SavedPlan;

/// Remove from the kernel what the agent put there, and nothing else: virtual servers on record,
/// our routes and device, chains in both variants of iptables, and sets. Safe to run twice, and on nodes that never ran an
/// agent.
#[derive(Debug, Args)]
pub(super) struct Cleanup {
    #[command(flatten)]
    device: DeviceArguments,
    #[command(flatten)]
    state: StateArguments,
}

impl Cleanup {
    pub(super) fn execute(self) -> anyhow::Result<()> {
        let record = Record::open(&self.state.state_dir)?;
        let recorded = record.read().unwrap_or_else(|problem| {
            warn!(%problem, "going on with what our sets say");
            None
        });
        let mut kernel = LinuxKernel::open(IptablesChoice::Auto)?;
        let saved = SavedPlan::new(&self.state.state_dir, "");
        // What cannot be read says nothing of a device with another name than usual.
        let plan = saved.read_of_any_node().unwrap_or_default();
        let node = plan.as_ref().and_then(|(plan, _)| plan.node());
        let device = self.device.name(node.map(|node| &node.settings));
        let network = kernel.network(&device)?;
        let observed = kernel.observe(network, BTreeMap::new())?;
        // Whatever answered had its entry in our sets, so they tell as well.
        let recorded = recorded.unwrap_or_else(|| observed.answering().collect());
        let owned = Owned {
            recorded,
            ..Owned::default()
        };
        let mut done = 0;
        let mut failures = Vec::new();
        for (family, reason) in &observed.unread_rules {
            failures.push(format!("read {family} rules: {reason}"));
        }
        for ops in cleanup(&observed, &owned, &device) {
            for result in kernel.apply(&ops) {
                match result {
                    Ok(()) => done += 1,
                    Err(error) => failures.push(error.to_string()),
                }
            }
        }
        writeln!(std::io::stdout().lock(), "removed: {done} operations").context("say so")?;
        if !failures.is_empty() {
            bail!(
                "{} operations failed:\n  {}",
                failures.len(),
                failures.join("\n  ")
            );
        }
        record.remove()?;
        // Whatever node it is of: what is served next is told by a controller.
        saved.remove()?;
        Ok(())
    }
}
