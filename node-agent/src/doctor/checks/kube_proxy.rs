//! What kube-proxy left behind: rules that take packets before IPVS does, and what lies around (S-200).

use std::net::SocketAddr;

use ipnet::IpNet;
use portolan_plan::Protocol;
use portolan_reconcile::VirtualServerKey;

use super::some;
use crate::doctor::{Check, Facts, Finding, listing};

/// Chains of kube-proxy in all its modes. Not among them: those that kubelet has, too
/// (`KUBE-FIREWALL`, `KUBE-KUBELET-CANARY`, `KUBE-IPTABLES-HINT`, and of an old one `KUBE-MARK-MASQ`,
/// `KUBE-MARK-DROP` and `KUBE-POSTROUTING`).
const CHAINS: [&str; 11] = [
    "KUBE-SERVICES",
    "KUBE-EXTERNAL-SERVICES",
    "KUBE-NODEPORTS",
    "KUBE-NODE-PORT",
    "KUBE-FORWARD",
    "KUBE-PROXY-FIREWALL",
    "KUBE-PROXY-CANARY",
    "KUBE-LOAD-BALANCER",
    "KUBE-SOURCE-RANGES-FIREWALL",
    "KUBE-IPVS-FILTER",
    "KUBE-IPVS-OUT-FILTER",
];
/// What the names of the chains of single Services and endpoints begin with.
const CHAINS_OF_SERVICES: [&str; 6] = [
    "KUBE-SVC-",
    "KUBE-SVL-",
    "KUBE-SEP-",
    "KUBE-EXT-",
    "KUBE-XLB-",
    "KUBE-FW-",
];
/// What the names of its sets begin with. Others call theirs `KUBE-SRC-…` and `KUBE-DST-…`.
const SETS: [&str; 8] = [
    "KUBE-6-",
    "KUBE-CLUSTER-IP",
    "KUBE-EXTERNAL-IP",
    "KUBE-HEALTH-CHECK-NODE-PORT",
    "KUBE-IPVS-IPS",
    "KUBE-LOAD-BALANCER",
    "KUBE-LOOP-BACK",
    "KUBE-NODE-PORT",
];

const CLEANUP: &str = "stop kube-proxy on this node for good, `kube-proxy --cleanup`, and restart the agent \
                       at once: this flushes every virtual server and device kube-ipvs0, ours too";

pub(super) fn leftovers(facts: &Facts) -> Vec<Finding> {
    let check = Check::KubeProxy;
    let findings: Vec<_> = [chains(facts), nft(facts), sets(facts), servers(facts)]
        .into_iter()
        .flatten()
        .collect();
    if !findings.is_empty() {
        return findings;
    }
    // What nobody could look at is not clean.
    match (&facts.tables, &facts.nft_tables) {
        (Err(_), _) => Vec::new(),
        (Ok(_), Ok(_)) => vec![Finding::ok(check, "nothing of it is left")],
        (Ok(_), Err(reason)) => {
            let told =
                format!("nothing of it is left in iptables; nftables was not read: {reason}");
            vec![Finding::ok(check, told)]
        }
    }
}

fn is_kube_proxys(chain: &str) -> bool {
    let mut of_services = CHAINS_OF_SERVICES.iter();
    CHAINS.contains(&chain) || of_services.any(|prefix| chain.starts_with(prefix))
}

/// Chains that packets come to fail; others only lie around.
fn chains(facts: &Facts) -> Option<Finding> {
    let mut left = Vec::new();
    let mut in_force = false;
    for (variant, family, saved) in facts.rules() {
        let chains = listing::chains(saved).filter(|chain| is_kube_proxys(chain));
        left.extend(chains.map(|chain| format!("{chain} ({variant}, {family})")));
        in_force |= listing::rules(saved)
            .any(|rule| !is_kube_proxys(rule.chain) && rule.target().is_some_and(is_kube_proxys));
    }
    if left.is_empty() {
        return None;
    }
    let left = some(left);
    Some(if in_force {
        let told = format!("chains of kube-proxy take packets before IPVS does: {left}");
        Finding::fail(Check::KubeProxy, told, CLEANUP)
    } else {
        let told = format!("chains of kube-proxy are left, to which no packet comes: {left}");
        Finding::warn(Check::KubeProxy, told, CLEANUP)
    })
}

fn nft(facts: &Facts) -> Option<Finding> {
    let tables = facts.nft_tables.as_ref().ok()?.lines().map(str::trim);
    let left: Vec<_> = tables
        .filter(|table| table.ends_with(" kube-proxy"))
        .collect();
    let delete: Vec<_> = left
        .iter()
        .map(|table| format!("`nft delete {table}`"))
        .collect();
    (!left.is_empty()).then(|| {
        let told = format!(
            "kube-proxy's rules in nftables take packets before IPVS does: {}",
            some(&left)
        );
        let delete = delete.join(" and ");
        let remedy = format!(
            "stop kube-proxy on this node for good, then {delete}, which is all that `kube-proxy \
             --cleanup` does about these"
        );
        Finding::fail(Check::KubeProxy, told, remedy)
    })
}

fn sets(facts: &Facts) -> Option<Finding> {
    let names = &facts.sets.as_ref().ok()?.names;
    let is_left = |name: &&String| SETS.iter().any(|prefix| name.starts_with(prefix));
    let left: Vec<_> = names.iter().filter(is_left).collect();
    (!left.is_empty()).then(|| {
        let told = format!("sets of kube-proxy are left: {}", some(&left));
        let names = left.iter().map(|name| name.as_str()).collect::<Vec<_>>();
        let remedy = format!(
            "once no chain of it is left, `for s in {}; do ipset destroy $s; done`: `kube-proxy \
             --cleanup` leaves those of IPv6",
            names.join(" ")
        );
        Finding::warn(Check::KubeProxy, told, remedy)
    })
}

/// Virtual servers in the service ranges that are not on record as ours.
fn servers(facts: &Facts) -> Option<Finding> {
    let servers = facts.servers.as_ref().ok()?;
    let recorded = facts.record.as_ref().ok()?.as_ref()?;
    let node = facts.node_entry()?;
    let holds = |ranges: &[IpNet], server: &VirtualServerKey| {
        ranges.iter().any(|range| range.contains(&server.address))
    };
    let is_left = |server: &&VirtualServerKey| {
        holds(&node.service_cidrs, server)
            && !holds(&node.settings.exclude_cidrs, server)
            && !recorded.contains(server)
    };
    let left: Vec<_> = servers.keys().filter(is_left).collect();
    let first = left.first()?;
    let told = format!(
        "virtual servers in the service ranges are not ours, and the agent will not touch them: {}",
        some(&left)
    );
    let place = SocketAddr::new(first.address, first.port);
    let option = match first.protocol {
        Protocol::Tcp => "-t",
        Protocol::Udp => "-u",
        Protocol::Sctp => "--sctp-service",
    };
    let remedy = format!(
        "`ipvsadm -D {option} {place}` and so on, if nobody needs them; `kube-proxy --cleanup` would \
         flush ours, too"
    );
    Some(Finding::warn(Check::KubeProxy, told, remedy))
}
