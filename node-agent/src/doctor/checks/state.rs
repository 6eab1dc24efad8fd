//! Time, disk, what the agent keeps there, and the way to the controller.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portolan_plan::{NodeEntry, NodePlan, Period};

use super::unless_privileged;
use crate::doctor::facts::Unreached;
use crate::doctor::{Check, Facts, Finding};
use crate::saved::Origin;
use crate::show::ago;

/// The beginning of 2024, in seconds since 1970: this program is younger.
const YOUNGEST: Duration = Duration::from_secs(1_704_067_200);
/// Clocks that were put right may have been ahead by so much.
const TOLERANCE: Duration = Duration::from_secs(60);

/// A wrong clock makes certificates invalid, and plans too old or too young.
pub(super) fn clock(facts: &Facts) -> Vec<Finding> {
    let check = Check::Clock;
    let remedy = "`chronyc makestep`, or `timedatectl set-ntp true`; `timedatectl` shows whether it is right";
    if facts.now < UNIX_EPOCH + YOUNGEST {
        return vec![Finding::fail(
            check,
            "it is set to a time before 2024",
            remedy,
        )];
    }
    let plan = facts.plan.as_ref().ok().and_then(Option::as_ref);
    let ahead = plan.and_then(|(_, origin)| origin.confirmed.duration_since(facts.now).ok());
    vec![match ahead {
        Some(ahead) if ahead > TOLERANCE => {
            let told = format!(
                "the plan on disk was confirmed {} s from now: the clock was or is wrong",
                ahead.as_secs()
            );
            Finding::warn(check, told, remedy)
        }
        _ => Finding::ok(check, "not before 2024, and not before the plan on disk"),
    }]
}

const MEGABYTE: u64 = 1_000_000;
/// Less than this, or than the share below, is too little.
const LITTLE: u64 = 50 * MEGABYTE;
/// In a hundred.
const LITTLE_SHARE: u64 = 5;

/// Where plan and record are kept.
pub(super) fn directory(facts: &Facts) -> Vec<Finding> {
    let check = Check::StateDirectory;
    let (path, disk) = &facts.state;
    let path = path.display();
    vec![match disk {
        Err(reason) => {
            let remedy = format!("`ls -ld {path}`: it has to be a directory, --state-dir names it");
            Finding::fail(check, reason, remedy)
        }
        Ok(None) => Finding::warn(
            check,
            format!("there is no {path}: no agent ran here, or it keeps its state elsewhere"),
            "name the agent's own with --state-dir (in its pod: the host path mounted there); an agent \
             makes it when it starts",
        ),
        Ok(Some(disk)) if !disk.writable => {
            let told =
                format!("{path} cannot be written to, so a restart would forget what is ours");
            let remount = format!(
                "`mount -o remount,rw` the disk of {path}; `dmesg` may tell why it is read-only"
            );
            Finding::fail(check, told, unless_privileged(facts, &remount))
        }
        Ok(Some(disk)) => {
            let told = format!(
                "{} MB of {} MB are free below {path}",
                disk.free / MEGABYTE,
                disk.size / MEGABYTE
            );
            let share = disk.free.saturating_mul(100) < disk.size.saturating_mul(LITTLE_SHARE);
            if disk.free < LITTLE || share {
                let remedy = format!(
                    "make room: `df -h {path}`, `journalctl --vacuum-size=200M`, `crictl rmi --prune`"
                );
                Finding::warn(check, told, remedy)
            } else {
                Finding::ok(check, told)
            }
        }
    }]
}

/// What the agent keeps there.
pub(super) fn plan_and_record(facts: &Facts) -> Vec<Finding> {
    let mut findings = plan(facts);
    let check = Check::Record;
    findings.push(match &facts.record {
        Err(reason) => Finding::fail(
            check,
            reason,
            "remove the file and restart the agent: it then takes for its own what its sets and the \
             service ranges name",
        ),
        Ok(None) if facts.node_entry().is_some() => Finding::warn(
            check,
            "there is a plan and no record of what is ours",
            "restart the agent: it takes for its own what its sets and the service ranges name",
        ),
        Ok(record) => {
            let count = record.as_ref().map_or(0, |recorded| recorded.len());
            Finding::ok(check, format!("{count} virtual servers are on record as ours"))
        }
    });
    findings
}

fn plan(facts: &Facts) -> Vec<Finding> {
    let check = Check::Plan;
    vec![match &facts.plan {
        Err(reason) => Finding::fail(
            check,
            reason,
            format!(
                "`rm {}/plan`: the next plan of a controller is kept again",
                facts.state.0.display()
            ),
        ),
        Ok(None) => Finding::warn(
            check,
            "there is none on disk: what is programmed is not judged, and settings are the defaults",
            "let the agent reach a controller once, and look at --state-dir",
        ),
        Ok(Some((plan, origin))) => of_node(facts, plan, origin),
    }]
}

fn of_node(facts: &Facts, plan: &NodePlan, origin: &Origin) -> Finding {
    let (check, found) = (Check::Plan, &origin.node);
    if let Some(node) = facts.node.as_ref().filter(|node| *node != found) {
        let told = format!("it is the plan of node {found}, and this is {node}: it is not used");
        let remedy = "was the disk copied? empty the state directory; or put --node right";
        return Finding::fail(check, told, remedy);
    }
    if plan.node().is_some_and(|node| is_elsewhere(facts, node)) {
        let told = format!("node {found} has addresses in it of which this machine has none");
        let remedy = "was the disk copied? empty the state directory; or did the node get new addresses: \
                      compare `kubectl get node -o wide` with `ip address`";
        return Finding::warn(check, told, remedy);
    }
    let written = ago(origin.written, facts.now);
    let mut told = format!("of {} Services, written {written}", plan.heads().count());
    if origin.confirmed != origin.written {
        told += ", confirmed ";
        told += &ago(origin.confirmed, facts.now);
    }
    let max_age = plan.node().map(|node| node.settings.disk.max_age);
    if let Some(max_age) = max_age.filter(|age| is_old(facts.now, origin.confirmed, *age)) {
        told += &format!(
            ": no controller stood behind it for longer than {max_age} (disk.maxAge), so after a reboot it \
             would serve boot-critical Services alone at first"
        );
        let remedy = "`kubectl get proxyplans` shows whether the controller hears of this node; \
                      `portolan-agent doctor --controller ADDRESS` whether it can be reached";
        return Finding::warn(check, told, remedy);
    }
    Finding::ok(check, told)
}

fn is_elsewhere(facts: &Facts, node: &NodeEntry) -> bool {
    let Ok(network) = &facts.network else {
        return false;
    };
    !node.addresses.is_empty() && !node.addresses.iter().any(|own| network.host.owns(*own))
}

fn is_old(now: SystemTime, confirmed: SystemTime, max_age: Period) -> bool {
    let age = now.duration_since(confirmed);
    age.is_ok_and(|age| age > max_age.as_duration())
}

/// Only one that somebody named.
pub(super) fn controller(facts: &Facts) -> Vec<Finding> {
    let check = Check::Controller;
    let Some((address, reached)) = &facts.controller else {
        return Vec::new();
    };
    vec![match reached {
        Ok(()) => Finding::ok(check, format!("{address} can be reached")),
        Err(Unreached::Distrusted(reason)) => {
            let told = format!("{address} is not believed: {reason}");
            let remedy = "`date -u` here and on the controller's node tells which clock is wrong; else put the \
                          certificate, --controller-ca or --controller-name right; what is programmed stays";
            Finding::fail(check, told, remedy)
        }
        Err(Unreached::NoWay(reason)) => {
            let told = format!("{address} cannot be reached: {reason}");
            let remedy = "see that a controller runs (`kubectl get pods -A -o wide | grep portolan`) and that no \
                          firewall or route keeps this node from its address; what is programmed stays";
            Finding::fail(check, told, remedy)
        }
    }]
}
