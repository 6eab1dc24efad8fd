//! `portolan-agent cleanup`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use portolan_reconcile::{Observed, Op, Owned, SetOp, cleanup};
use tracing::warn;

use super::{DeviceArguments, StateArguments};
use crate::kernel::linux::{read_sysctl, restore_sysctl};
use crate::kernel::{IptablesChoice, Kernel, LinuxKernel};
use crate::record::Record;
use crate::saved::SavedPlan;
use crate::settings_before::SettingsBefore;
use crate::tables::TablesKeeper;

/// It exists while the module of IPVS is loaded.
const IPVS: &str = "/proc/net/ip_vs";
/// Number of attempts to destroy a set. Kernels may free rules a moment after they were deleted (observed with 5.10),
/// and until then the sets of those rules are in use.
const ATTEMPTS: usize = 50;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Arguments of `portolan-agent cleanup`.
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
            warn!(
                %problem,
                "the ownership record cannot be read; removing the virtual servers that the agent's sets admit"
            );
            None
        });
        let mut kernel = LinuxKernel::open(IptablesChoice::Auto, &self.state.state_dir)?;
        let saved = SavedPlan::new(&self.state.state_dir, "");
        // Without a readable plan, the device has its default name.
        let plan = saved.read_of_any_node().unwrap_or_default();
        let node = plan.as_ref().and_then(|(plan, _)| plan.node());
        let device = self.device.name(node.map(|node| &node.settings));
        let observed = observe(&mut kernel, &device)?;
        // Each virtual server that answered has an entry in the agent's sets, so these can replace the record.
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
            let (count, failed) = carry_out(ops, |ops| kernel.apply(ops), PAUSE);
            done += count;
            failures.extend(failed.iter().map(ToString::to_string));
        }
        done += remove_tables(&mut kernel, &mut failures);
        // A damaged record of settings must not prevent the rest of the cleanup.
        let directory = &self.state.state_dir;
        let before = SettingsBefore::read(directory).unwrap_or_else(|problem| {
            warn!(%problem, "the record of kernel settings cannot be read; not restoring them");
            SettingsBefore::none(directory)
        });
        done += restore_settings(&before, &mut failures);
        let result = match (done, failures.is_empty()) {
            (0, true) => "nothing to remove".to_owned(),
            _ => format!("removed kernel entries and restored settings: {done}"),
        };
        writeln!(std::io::stdout().lock(), "{result}").context("write to standard output")?;
        if !failures.is_empty() {
            bail!(
                "{} operations failed:\n  {}",
                failures.len(),
                failures.join("\n  ")
            );
        }
        record.remove()?;
        // For any node: an agent that starts later gets its plan from a controller.
        saved.remove()?;
        before
            .remove()
            .context("delete the record of previous kernel settings")
    }
}

/// What is in the kernel. On a node that lacks IPVS there is nothing of IPVS to remove.
fn observe(kernel: &mut LinuxKernel, device: &str) -> anyhow::Result<Observed> {
    let network = kernel.network(device)?;
    if kernel.require_ipvs().is_err() && !Path::new(IPVS).exists() {
        return Ok(Observed {
            policy: network.policy,
            routes: network.routes,
            device_up: network.device_up,
            ..Observed::default()
        });
    }
    Ok(kernel.observe(network, BTreeMap::new(), None)?)
}

/// Removes the tables of the nftables dataplane. Returns their number.
fn remove_tables(kernel: &mut impl Kernel, failures: &mut Vec<String>) -> usize {
    if !kernel.may_have_tables() {
        return 0;
    }
    let removed = match kernel.open_tables() {
        Ok(tables) => TablesKeeper::new(tables, Instant::now()).cleanup(),
        Err(error) => vec![Err(error)],
    };
    let count = removed.len();
    let failed = removed.into_iter().filter_map(Result::err);
    let failed: Vec<_> = failed.map(|error| error.to_string()).collect();
    let count = count.saturating_sub(failed.len());
    failures.extend(failed);
    count
}

/// Restores kernel settings that still have the agent's values. Returns their number.
fn restore_settings(before: &SettingsBefore, failures: &mut Vec<String>) -> usize {
    let mut restored = 0;
    for name in before.all().keys() {
        let found = read_sysctl(&name.as_str().into());
        let Some(value) = found.and_then(|(_, found)| before.restored(name, &found)) else {
            continue;
        };
        match restore_sysctl(name, &value) {
            Ok(()) => restored += 1,
            Err(error) => failures.push(error.to_string()),
        }
    }
    restored
}

/// Applies the operations and retries sets that cannot be destroyed yet. Returns the number of successful operations,
/// and the errors of those that failed in the end.
fn carry_out<E>(
    mut ops: Vec<Op>,
    mut apply: impl FnMut(&[Op]) -> Vec<Result<(), E>>,
    pause: Duration,
) -> (usize, Vec<E>) {
    let (mut done, mut failures) = (0, Vec::new());
    for last in (0..ATTEMPTS).map(|number| number + 1 == ATTEMPTS) {
        let results = apply(&ops);
        let mut again = Vec::new();
        for (op, result) in ops.into_iter().zip(results) {
            let is_set = matches!(
                op,
                Op::Set(SetOp::Destroy { .. } | SetOp::DestroyLeftover { .. })
            );
            match result {
                Ok(()) => done += 1,
                Err(_) if is_set && !last => again.push(op),
                Err(error) => failures.push(error),
            }
        }
        if again.is_empty() {
            break;
        }
        ops = again;
        std::thread::sleep(pause);
    }
    (done, failures)
}

#[cfg(test)]
mod tests {
    use portolan_plan::Family;
    use portolan_reconcile::{SetId, SetRole};

    use portolan_reconcile::LinkOp;

    use super::*;

    fn destroy(role: SetRole) -> Op {
        let family = Family::Ipv4;
        Op::Set(SetOp::Destroy {
            set: SetId { role, family },
        })
    }

    /// `fails` decides by the number of the call and the operation.
    fn calls(ops: Vec<Op>, fails: impl Fn(usize, &Op) -> bool) -> (usize, usize, usize) {
        let mut calls = 0;
        let apply = |ops: &[Op]| {
            calls += 1;
            let result = |op| if fails(calls, op) { Err(()) } else { Ok(()) };
            ops.iter().map(result).collect()
        };
        let (done, failures) = carry_out(ops, apply, Duration::ZERO);
        (calls, done, failures.len())
    }

    #[test]
    fn destroying_a_set_that_is_in_use_is_retried() {
        let sets = || vec![destroy(SetRole::Masq), destroy(SetRole::Pods)];
        let masq = destroy(SetRole::Masq);
        assert_eq!(calls(sets(), |_, _| false), (1, 2, 0));
        assert_eq!(calls(sets(), |call, op| call < 3 && *op == masq), (3, 2, 0));
        assert_eq!(calls(sets(), |_, op| *op == masq), (ATTEMPTS, 1, 1));
        let device = Op::Link(LinkOp::RemoveDevice {
            device: "kube-ipvs0".into(),
        });
        assert_eq!(calls(vec![device], |_, _| true), (1, 0, 1));
    }
}
