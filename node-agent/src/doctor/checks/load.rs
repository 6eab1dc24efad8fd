//! Checks of the usage, size and cost of kernel tables.

use portolan_reconcile::{Ports, RESERVED_PORTS, ports_to_connect_from};

use crate::doctor::facts::RUN_ESTIMATION;
use crate::doctor::{Check, Facts, Finding};

/// Percentage from which the table is reported as a warning.
const NEARLY_FULL: u64 = 80;
/// Percentage from which the next burst may fill the table.
const FULL: u64 = 95;

/// New connections are dropped when no more can be tracked (S-178).
pub(super) fn conntrack(facts: &Facts) -> Vec<Finding> {
    let check = Check::Conntrack;
    let tracked = match &facts.tracked {
        Ok(tracked) => tracked,
        Err(reason) => {
            let message = format!("the number of tracked connections is unknown: {reason}");
            return vec![Finding::warn(check, message, "`modprobe nf_conntrack`")];
        }
    };
    let (count, most) = (tracked.count, tracked.most);
    let share = count.saturating_mul(100) / most.max(1);
    let message = format!("{count} of {most} connections are tracked, {share} %");
    let remedy = || {
        format!(
            "`sysctl -w net.netfilter.nf_conntrack_max={}` now; to keep it, set spec.settings.conntrack.min \
             (or maxPerCore) of the ProxyConfig",
            most.saturating_mul(2)
        )
    };
    vec![match share {
        FULL.. => Finding::fail(
            check,
            message + ": new ones are about to be dropped",
            remedy(),
        ),
        NEARLY_FULL.. => Finding::warn(check, message, remedy()),
        _ => Finding::ok(check, message),
    }]
}

/// Without ports to connect from, the kubelet, the runtime and the agent itself cannot connect to others (S-242).
pub(super) fn connect_ports(facts: &Facts) -> Vec<Finding> {
    let check = Check::ConnectPorts;
    let (Ok(network), Some(reserved)) = (&facts.network, facts.sysctl(RESERVED_PORTS)) else {
        return Vec::new();
    };
    let local = &network.host.machine.local_ports;
    let Some((is_enough, count)) = ports_to_connect_from(local, &Ports::parse(reserved)) else {
        return Vec::new();
    };
    let message = format!("this node connects from {count} ports");
    if is_enough {
        return vec![Finding::ok(check, message)];
    }
    let message = format!(
        "{message} of {local}: {RESERVED_PORTS} is {reserved}, so connections of the node fail when all are in use"
    );
    let remedy = "choose a smaller spec.settings.nodePortRange of the ProxyConfig; if other programs reserve the \
                  ports, correct their files in /etc/sysctl.d";
    vec![Finding::fail(check, message, remedy)]
}

/// The kernel's default number of bits: 4096 buckets.
const DEFAULT_BITS: u32 = 12;

/// Connection lookups are slow if many connections share a bucket (S-195).
pub(super) fn connection_table(facts: &Facts) -> Vec<Finding> {
    // Not readable without IPVS, which has a check of its own, and with an IPVS that has no parameters.
    let bits = facts.connection_table_bits.as_ref();
    bits.map_or_else(|_| Vec::new(), |bits| vec![of_table(*bits)])
}

/// The finding for a table with `2^bits` buckets.
pub(in crate::doctor) fn of_table(bits: u32) -> Finding {
    let check = Check::ConnectionTable;
    let places = 1u64.checked_shl(bits).unwrap_or(u64::MAX);
    let message = format!("the IPVS connection table has {places} buckets");
    if bits <= DEFAULT_BITS {
        let message = message + ", few for a busy node";
        let remedy = "write `options ip_vs conn_tab_bits=18` to a file in /etc/modprobe.d, then restart the node \
                      (if IPVS is built in: ip_vs.conn_tab_bits=18 on the kernel command line)";
        Finding::warn(check, message, remedy)
    } else {
        Finding::ok(check, message)
    }
}

/// Kernel version since which separate threads estimate the rates.
const ESTIMATION_THREADS: (u32, u32) = (6, 2);
/// Number of virtual and real servers that is a problem for older kernels.
const MANY_SERVERS: usize = 10_000;

/// Older kernels estimate the rates of all servers in one timer (S-194).
pub(super) fn rate_estimation(facts: &Facts) -> Vec<Finding> {
    let check = Check::RateEstimation;
    let (Ok(network), Ok(servers)) = (&facts.network, &facts.servers) else {
        return Vec::new();
    };
    let (major, minor) = network.host.machine.kernel;
    let real: usize = servers.values().map(|held| held.real_servers.len()).sum();
    let count = servers.len() + real;
    let message =
        format!("Linux {major}.{minor} estimates rates of {count} virtual and real servers");
    let is_old = (major, minor) < ESTIMATION_THREADS && (major, minor) != (0, 0);
    vec![match facts.sysctl(RUN_ESTIMATION) {
        Some("0") => Finding::ok(check, "rate estimation is off"),
        _ if !is_old || count < MANY_SERVERS => Finding::ok(check, message),
        Some(_) => {
            let message = message + " in one timer: packets wait for it";
            let remedy = format!("`sysctl -w {RUN_ESTIMATION}=0`, or use Linux 6.2 or newer");
            Finding::warn(check, message, remedy)
        }
        None => {
            let message = message + " in one timer: packets wait for it";
            Finding::warn(check, message, "use Linux 6.2 or newer on this node")
        }
    }]
}
