//! How full the kernel's tables are, and what they cost.

use crate::doctor::facts::RUN_ESTIMATION;
use crate::doctor::{Check, Facts, Finding};

/// From so many in a hundred on somebody should look.
const NEARLY_FULL: u64 = 80;
/// From so many on the next burst finds no room.
const FULL: u64 = 95;

/// New connections are dropped when no more can be tracked (S-178).
pub(super) fn conntrack(facts: &Facts) -> Vec<Finding> {
    let check = Check::Conntrack;
    let tracked = match &facts.tracked {
        Ok(tracked) => tracked,
        Err(reason) => {
            let told = format!("nobody knows how many connections are tracked: {reason}");
            return vec![Finding::warn(check, told, "`modprobe nf_conntrack`")];
        }
    };
    let (count, most) = (tracked.count, tracked.most);
    let share = count.saturating_mul(100) / most.max(1);
    let told = format!("{count} of at most {most} connections are tracked, {share} %");
    let remedy = || {
        format!(
            "`sysctl -w net.netfilter.nf_conntrack_max={}` now; to keep it, spec.settings.conntrack.min \
             (or maxPerCore) of the ProxyConfig",
            most.saturating_mul(2)
        )
    };
    vec![match share {
        FULL.. => Finding::fail(check, told + ": new ones are about to be dropped", remedy()),
        NEARLY_FULL.. => Finding::warn(check, told, remedy()),
        _ => Finding::ok(check, told),
    }]
}

/// So many bits are what the kernel takes if nobody says otherwise: 4096 places.
const FEW_BITS: u32 = 12;

/// Looking up a connection takes long where many share a place (S-195).
pub(super) fn connection_table(facts: &Facts) -> Vec<Finding> {
    // Who cannot read it has no IPVS, which is told elsewhere, or has it without parameters.
    let bits = facts.connection_table_bits.as_ref();
    bits.map_or_else(|_| Vec::new(), |bits| vec![of_table(*bits)])
}

/// The same of a table with two to the power of so many places.
pub(in crate::doctor) fn of_table(bits: u32) -> Finding {
    let check = Check::ConnectionTable;
    let places = 1u64.checked_shl(bits).unwrap_or(u64::MAX);
    let told = format!("IPVS's table of connections has {places} places");
    if bits <= FEW_BITS {
        let told = told + ", few for a busy node";
        let remedy = "`options ip_vs conn_tab_bits=18` in a file in /etc/modprobe.d, then restart the node \
                      (where IPVS is a part of the kernel: ip_vs.conn_tab_bits=18 on its command line)";
        Finding::warn(check, told, remedy)
    } else {
        Finding::ok(check, told)
    }
}

/// From here on rates are counted by a thread of their own.
const OWN_THREAD: (u32, u32) = (6, 2);
/// So many virtual and real servers are many for the kernels before.
const MANY_SERVERS: usize = 10_000;

/// Older kernels count the rates of all servers in one timer (S-194).
pub(super) fn rate_estimation(facts: &Facts) -> Vec<Finding> {
    let check = Check::RateEstimation;
    let (Ok(network), Ok(servers)) = (&facts.network, &facts.servers) else {
        return Vec::new();
    };
    let (major, minor) = network.host.machine.kernel;
    let real: usize = servers.values().map(|held| held.real_servers.len()).sum();
    let count = servers.len() + real;
    let told = format!("Linux {major}.{minor} counts rates of {count} virtual and real servers");
    let is_old = (major, minor) < OWN_THREAD && (major, minor) != (0, 0);
    vec![match facts.sysctl(RUN_ESTIMATION) {
        Some("0") => Finding::ok(check, "rates are not counted"),
        _ if !is_old || count < MANY_SERVERS => Finding::ok(check, told),
        Some(_) => {
            let told = told + " in one timer: packets wait for it";
            let remedy = format!("`sysctl -w {RUN_ESTIMATION}=0`, or Linux 6.2 or newer");
            Finding::warn(check, told, remedy)
        }
        None => {
            let told = told + " in one timer: packets wait for it";
            Finding::warn(check, told, "Linux 6.2 or newer on this node")
        }
    }]
}
