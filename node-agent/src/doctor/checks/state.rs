//! Checks of time, disk, saved state, and the connection to the controller.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portolan_plan::{NodeEntry, NodePlan, Period};

use super::unless_privileged;
use crate::doctor::facts::ConnectError;
use crate::doctor::{Check, Facts, Finding};
use crate::saved::Origin;
use crate::show::ago;

/// The beginning of 2024, in seconds since 1970: before the release of this program.
const EARLIEST_TIME: Duration = Duration::from_secs(1_704_067_200);
/// How far a clock may have been ahead before it was corrected.
const TOLERANCE: Duration = Duration::from_secs(60);

/// A wrong clock makes certificates invalid and falsifies the age of plans.
pub(super) fn clock(facts: &Facts) -> Vec<Finding> {
    let check = Check::Clock;
    let remedy = "`chronyc makestep`, or `timedatectl set-ntp true`; `timedatectl` shows whether it is right";
    if facts.now < UNIX_EPOCH + EARLIEST_TIME {
        return vec![Finding::fail(
            check,
            "the system time is before 2024",
            remedy,
        )];
    }
    let plan = facts.plan.as_ref().ok().and_then(Option::as_ref);
    let ahead = plan.and_then(|(_, origin)| origin.confirmed.duration_since(facts.now).ok());
    vec![match ahead {
        Some(ahead) if ahead > TOLERANCE => {
            let message = format!(
                "the saved plan was confirmed {} s in the future: the clock is or was wrong",
                ahead.as_secs()
            );
            Finding::warn(check, message, remedy)
        }
        _ => Finding::ok(
            check,
            "the system time is neither before 2024 nor before the saved plan",
        ),
    }]
}

const MEGABYTE: u64 = 1_000_000;
/// Minimum of free space in bytes.
const MIN_FREE_BYTES: u64 = 50 * MEGABYTE;
/// Minimum of free space in percent of the disk.
const MIN_FREE_PERCENT: u64 = 5;

/// The directory that holds the plan and the record.
pub(super) fn directory(facts: &Facts) -> Vec<Finding> {
    let check = Check::StateDirectory;
    let (path, disk) = &facts.state;
    let path = path.display();
    vec![match disk {
        Err(reason) => {
            let remedy = format!("`ls -ld {path}`: it has to be a directory; --state-dir sets it");
            Finding::fail(check, reason, remedy)
        }
        Ok(None) => Finding::warn(
            check,
            format!("{path} does not exist: no agent ran here, or it uses another directory"),
            "set --state-dir to the agent's directory (in its pod: the host path mounted there); an agent \
             creates it when it starts",
        ),
        Ok(Some(disk)) if !disk.writable => {
            let message = format!(
                "{path} is not writable, so after a restart the agent would not know what it owns"
            );
            let remount = format!(
                "`mount -o remount,rw` the disk of {path}; `dmesg` may show why it is read-only"
            );
            Finding::fail(check, message, unless_privileged(facts, &remount))
        }
        Ok(Some(disk)) => {
            let message = format!(
                "{} MB of {} MB are free below {path}",
                disk.free / MEGABYTE,
                disk.size / MEGABYTE
            );
            let share = disk.free.saturating_mul(100) < disk.size.saturating_mul(MIN_FREE_PERCENT);
            if disk.free < MIN_FREE_BYTES || share {
                let remedy = format!(
                    "free some space: `df -h {path}`, `journalctl --vacuum-size=200M`, `crictl rmi --prune`"
                );
                Finding::warn(check, message, remedy)
            } else {
                Finding::ok(check, message)
            }
        }
    }]
}

/// What an agent does without a record (S-109).
const ADOPTS: &str = "it then owns the virtual servers that its sets admit, and those at addresses that only \
                      Services use";

/// The files in the state directory.
pub(super) fn plan_and_record(facts: &Facts) -> Vec<Finding> {
    let mut findings = plan(facts);
    let check = Check::OwnershipRecord;
    findings.push(match &facts.record {
        Err(reason) => {
            let directory = facts.state.0.display();
            let remedy =
                format!("`rm {directory}/virtual-servers`, and restart the agent: {ADOPTS}");
            Finding::fail(check, reason, remedy)
        }
        Ok(None) if facts.node_entry().is_some() => Finding::warn(
            check,
            "there is a plan, but no record of owned virtual servers",
            format!("restart the agent: {ADOPTS}"),
        ),
        Ok(record) => {
            let count = record.as_ref().map_or(0, |recorded| recorded.len());
            Finding::ok(
                check,
                format!("{count} virtual servers are recorded as owned"),
            )
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
                "`rm {}/plan`: the agent saves the next plan from a controller",
                facts.state.0.display()
            ),
        ),
        Ok(None) => Finding::warn(
            check,
            "no plan is saved: the programmed state is not checked, and settings are the defaults",
            "make sure that the agent reaches a controller, and check --state-dir",
        ),
        Ok(Some((plan, origin))) => of_node(facts, plan, origin),
    }]
}

fn of_node(facts: &Facts, plan: &NodePlan, origin: &Origin) -> Finding {
    let (check, found) = (Check::Plan, &origin.node);
    if let Some(node) = facts.node.as_ref().filter(|node| *node != found) {
        let message =
            format!("the saved plan is for node {found}, but this is {node}: the agent ignores it");
        let remedy = "if the disk was copied, empty the state directory; else correct --node";
        return Finding::fail(check, message, remedy);
    }
    if plan.node().is_some_and(|node| is_elsewhere(facts, node)) {
        let message = format!(
            "the saved plan is for node {found}, but this machine has none of its addresses"
        );
        let remedy = "if the disk was copied, empty the state directory; if the node got new addresses, \
                      compare `kubectl get node -o wide` with `ip address`";
        return Finding::warn(check, message, remedy);
    }
    let written = ago(origin.written, facts.now);
    let services = plan.heads().count();
    let mut message = format!("the saved plan of {services} Services was written {written}");
    if origin.confirmed != origin.written {
        message += ", confirmed ";
        message += &ago(origin.confirmed, facts.now);
    }
    let max_age = plan.node().map(|node| node.settings.disk.max_age);
    if let Some(max_age) = max_age.filter(|age| is_old(facts.now, origin.confirmed, *age)) {
        message += &format!(
            ": no controller confirmed it within {max_age} (disk.maxAge), so after a reboot the agent would \
             at first serve only boot-critical Services"
        );
        let remedy = "`kubectl get proxyplans` shows whether this node's agent is connected to a controller; \
                      `portolan-agent doctor --controller ADDRESS` checks the connection";
        return Finding::warn(check, message, remedy);
    }
    Finding::ok(check, message)
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

/// Checks the controller only if its address was given.
pub(super) fn controller(facts: &Facts) -> Vec<Finding> {
    let check = Check::Controller;
    let Some((address, reached)) = &facts.controller else {
        return Vec::new();
    };
    vec![match reached {
        Ok(()) => Finding::ok(check, format!("{address} is reachable")),
        Err(ConnectError::Distrusted(reason)) => {
            let message = format!("{address} cannot be authenticated: {reason}");
            let remedy = "compare `date -u` here and on the controller's node to find which clock is wrong; else \
                          correct the certificate, --controller-ca or --controller-name; the programmed state stays";
            Finding::fail(check, message, remedy)
        }
        Err(ConnectError::NoWay(reason)) => {
            let message = format!("{address} is not reachable: {reason}");
            let remedy = "check that a controller runs (`kubectl get pods -A -o wide | grep portolan`) and that no \
                          firewall or route blocks its address; the programmed state stays";
            Finding::fail(check, message, remedy)
        }
    }]
}
