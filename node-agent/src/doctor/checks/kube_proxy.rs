//! Leftovers of kube-proxy: rules that take packets before IPVS does, and unused objects (S-200).

use std::net::SocketAddr;

use ipnet::IpNet;
use portolan_plan::Protocol;
use portolan_reconcile::VirtualServerKey;

use super::some;
use crate::doctor::{Check, Facts, Finding, listing};

/// Chains of kube-proxy in all its modes, without those that the kubelet uses as well
/// (`KUBE-FIREWALL`, `KUBE-KUBELET-CANARY`, `KUBE-IPTABLES-HINT`, and in older versions `KUBE-MARK-MASQ`,
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
/// Prefixes of kube-proxy's chains for single Services and endpoints.
const CHAINS_OF_SERVICES: [&str; 6] = [
    "KUBE-SVC-",
    "KUBE-SVL-",
    "KUBE-SEP-",
    "KUBE-EXT-",
    "KUBE-XLB-",
    "KUBE-FW-",
];
/// Prefixes of kube-proxy's sets. Other programs use `KUBE-SRC-…` and `KUBE-DST-…`.
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

const CLEANUP: &str = "stop kube-proxy on this node for good, run `kube-proxy --cleanup`, and restart the agent \
                       at once: the cleanup flushes all virtual servers and device kube-ipvs0, also the agent's";

pub(super) fn leftovers(facts: &Facts) -> Vec<Finding> {
    let check = Check::KubeProxy;
    let findings: Vec<_> = [chains(facts), nft(facts), sets(facts), servers(facts)]
        .into_iter()
        .flatten()
        .collect();
    if !findings.is_empty() {
        return findings;
    }
    // Without having read the tables, they cannot be reported as clean.
    match (&facts.tables, &facts.nft_tables) {
        (Err(_), _) => Vec::new(),
        (Ok(_), Ok(_)) => vec![Finding::ok(check, "no leftovers of kube-proxy")],
        (Ok(_), Err(reason)) => {
            let message =
                format!("no leftovers of kube-proxy in iptables; nftables was not read: {reason}");
            vec![Finding::ok(check, message)]
        }
    }
}

fn is_kube_proxys(chain: &str) -> bool {
    let mut of_services = CHAINS_OF_SERVICES.iter();
    CHAINS.contains(&chain) || of_services.any(|prefix| chain.starts_with(prefix))
}

/// Chains that packets traverse are a failure; unused chains are a warning.
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
        let message = format!("chains of kube-proxy take packets before IPVS does: {left}");
        Finding::fail(Check::KubeProxy, message, CLEANUP)
    } else {
        let message = format!("unused chains of kube-proxy are left: {left}");
        Finding::warn(Check::KubeProxy, message, CLEANUP)
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
        let message = format!(
            "kube-proxy's rules in nftables take packets before IPVS does: {}",
            some(&left)
        );
        let delete = delete.join(" and ");
        let remedy = format!(
            "stop kube-proxy on this node for good, then run {delete}, as `kube-proxy --cleanup` does"
        );
        Finding::fail(Check::KubeProxy, message, remedy)
    })
}

fn sets(facts: &Facts) -> Option<Finding> {
    let names = &facts.sets.as_ref().ok()?.names;
    let is_left = |name: &&String| SETS.iter().any(|prefix| name.starts_with(prefix));
    let left: Vec<_> = names.iter().filter(is_left).collect();
    (!left.is_empty()).then(|| {
        let message = format!("sets of kube-proxy are left: {}", some(&left));
        let names = left.iter().map(|name| name.as_str()).collect::<Vec<_>>();
        let remedy = format!(
            "once its chains are gone, run `for s in {}; do ipset destroy $s; done`: `kube-proxy \
             --cleanup` leaves the IPv6 sets",
            names.join(" ")
        );
        Finding::warn(Check::KubeProxy, message, remedy)
    })
}

/// Virtual servers in the service ranges that the agent has not recorded as owned.
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
    let message = format!(
        "these virtual servers in the service ranges were not made by the agent, and it does not change them: {}",
        some(&left)
    );
    let place = SocketAddr::new(first.address, first.port);
    let option = match first.protocol {
        Protocol::Tcp => "-t",
        Protocol::Udp => "-u",
        Protocol::Sctp => "--sctp-service",
    };
    let remedy = format!(
        "`ipvsadm -D {option} {place}` and so on, if they are unused; `kube-proxy --cleanup` would \
         also flush the agent's"
    );
    Some(Finding::warn(Check::KubeProxy, message, remedy))
}
