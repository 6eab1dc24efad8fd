//! How interfaces and bridges treat packets.

use std::net::IpAddr;

use portolan_reconcile::{HostAddress, HostInterface, InterfaceKind, Ipv6Off, Network};

use super::kernel::{Wrong, set, wrong};
use super::some;
use crate::doctor::facts::{IPV6_FORWARDING, reverse_path as setting};
use crate::doctor::{Check, Facts, Finding};

/// What the kernel is told by `rp_filter`.
const STRICT: u32 = 1;

/// A packet that came another way than an answer would go is dropped where this is strict: clients of a
/// second network, and what an overlay brings from a node's own address.
pub(super) fn reverse_path(facts: &Facts) -> Vec<Finding> {
    let check = Check::ReversePath;
    let Ok(network) = &facts.network else {
        return Vec::new();
    };
    let value = |interface: &str| -> u32 {
        let found = facts.sysctl(&setting(interface));
        found.and_then(|value| value.parse().ok()).unwrap_or(0)
    };
    // The kernel goes by the greater of the two.
    let is_strict = |name: &&str| value(name).max(value("all")) == STRICT;
    let strict: Vec<_> = lossy(facts, network)
        .into_iter()
        .filter(is_strict)
        .collect();
    vec![if strict.is_empty() {
        Finding::ok(check, "no interface drops what comes by another way")
    } else {
        let told = format!(
            "what arrives at {} is dropped if it came by another way than an answer would go (rp_filter \
             is 1): clients of node ports on a second network, what an overlay brings",
            some(&strict)
        );
        let settings: Vec<_> = strict
            .iter()
            .map(|name| format!("{}=2", setting(name)))
            .collect();
        let remedy = format!(
            "`sysctl -w {}`: 2 is loose, and wins over 1 of all",
            settings.join(" ")
        );
        Finding::warn(check, told, remedy)
    }]
}

/// Interfaces where packets of Services come by another way than answers go: those with addresses of
/// the node, if there are several, and those of overlays.
fn lossy<'a>(facts: &Facts, network: &'a Network) -> Vec<&'a str> {
    let pods = &facts.node_or_default().pod_cidrs;
    let is_of_pods = |host: &HostAddress| pods.iter().any(|range| range.contains(&host.address));
    let plain = |interface: &&HostInterface| {
        interface.kind == InterfaceKind::Other && &*interface.name != "lo"
    };
    let has = |interface: &HostInterface, like: &dyn Fn(&HostAddress) -> bool| {
        let mut addresses = network.host.addresses.iter();
        addresses
            .any(|host| host.interface == interface.name && host.address.is_ipv4() && like(host))
    };
    let is_lan = |host: &HostAddress| !is_of_pods(host) && !host.is_single() && is_global(host);
    let all = || network.host.interfaces.iter().filter(plain);
    let overlays = all().filter(|interface| has(interface, &is_of_pods));
    let lans: Vec<_> = all().filter(|interface| has(interface, &is_lan)).collect();
    let several = lans.len() > 1;
    overlays
        .chain(lans.into_iter().filter(|_| several))
        .map(|interface| &*interface.name)
        .collect()
}

fn is_global(host: &HostAddress) -> bool {
    match host.address {
        IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
        IpAddr::V6(_) => true,
    }
}

/// Pods on one bridge get no answer from each other through a Service where it does not hand packets to
/// the rules.
pub(super) fn bridges(facts: &Facts) -> Vec<Finding> {
    let check = Check::Bridges;
    if facts.network.is_err() {
        return Vec::new();
    }
    let is_of_bridges = |name: &str| name.starts_with("net.bridge.");
    if !facts
        .wanted_sysctls()
        .keys()
        .any(|name| is_of_bridges(name))
    {
        return vec![Finding::ok(check, "no pods hang on a bridge")];
    }
    let wrong = wrong(facts, is_of_bridges);
    let told = || {
        format!(
            "pods on one bridge get no answer from each other through a Service: {}",
            some(wrong.iter().map(Wrong::told))
        )
    };
    vec![if wrong.is_empty() {
        Finding::ok(check, "bridges hand packets of pods to the rules")
    } else if wrong.iter().any(|wrong| wrong.found.is_none()) {
        let remedy = format!("`modprobe br_netfilter`, then {}", set(&wrong));
        Finding::fail(check, told(), remedy)
    } else {
        Finding::fail(check, told(), set(&wrong))
    }]
}

/// Answers of pods to others pass the node only where it forwards. The agent does not switch that on: with it the
/// kernel stops to learn routes from router advertisements (S-239).
fn forwards_no_ipv6(facts: &Facts) -> Option<Finding> {
    let desired = facts.desired()?;
    let mut served = desired.virtual_servers.keys();
    let serves = served.any(|server| server.address.is_ipv6());
    if !serves || facts.sysctl(IPV6_FORWARDING) != Some("0") {
        return None;
    }
    let told = format!(
        "Services have IPv6 addresses, and this node passes no IPv6 packets on ({IPV6_FORWARDING} is 0): clients \
         elsewhere get no answers of its pods"
    );
    let remedy = format!(
        "`sysctl -w {IPV6_FORWARDING}=1`; where the node learns its default route from a router, also \
         net.ipv6.conf.INTERFACE.accept_ra=2, or it loses that"
    );
    Some(Finding::fail(Check::Ipv6, told, remedy))
}

/// A node without IPv6 serves IPv4 alone, which is wrong only if its plan gives it IPv6 (S-182).
pub(super) fn ipv6(facts: &Facts) -> Vec<Finding> {
    let check = Check::Ipv6;
    let Ok(network) = &facts.network else {
        return Vec::new();
    };
    let lacks = facts.desired().and_then(|desired| desired.lacks_ipv6);
    if let Some(finding) = forwards_no_ipv6(facts) {
        return vec![finding];
    }
    vec![match (network.host.machine.ipv6_off, lacks) {
        (None, _) => Finding::ok(check, "this node has IPv6"),
        (Some(_), None) => Finding::ok(check, "it is off on this node, which serves IPv4 alone"),
        (Some(why), Some(_)) => {
            let told = format!(
                "it is off on this node ({why}), but its Node object has IPv6 addresses or pod ranges: no \
                 Service is served at an IPv6 address"
            );
            let remedy = match why {
                Ipv6Off::NotInKernel => {
                    "start the kernel without ipv6.disable=1, or take IPv6 from the Node object"
                }
                Ipv6Off::Disabled => "`sysctl -w net.ipv6.conf.all.disable_ipv6=0`",
            };
            Finding::fail(check, told, remedy)
        }
    }]
}
