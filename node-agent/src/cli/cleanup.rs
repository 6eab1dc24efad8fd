//! `portolan-agent cleanup`.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context as _, bail};
use clap::Args;
use portolan_reconcile::{Owned, cleanup};
use tracing::warn;

use super::StateArguments;
use crate::kernel::{IptablesChoice, Kernel as _, LinuxKernel};
use crate::record::Record;
use crate::saved::SavedPlan;

/// Remove from the kernel what the agent put there, and nothing else: virtual servers on record,
/// our routes and device, chains in both variants of iptables, and sets. Safe to run twice, and on nodes that never ran an
/// agent.
#[derive(Debug, Args)]
pub(super) struct Cleanup {
    /// The dummy device to remove.
    #[arg(long, default_value = "kube-ipvs0", value_name = "NAME")]
    device: String,
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
        let network = kernel.network(&self.device)?;
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
        for ops in cleanup(&observed, &owned, &self.device) {
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
        SavedPlan::new(&self.state.state_dir, "").remove()?;
        Ok(())
    }
}
