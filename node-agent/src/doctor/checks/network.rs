//! Checks of interfaces, bridges and IPv6.

use std::net::IpAddr;

use portolan_reconcile::{HostAddress, HostInterface, InterfaceKind, Ipv6Off, Network};

use super::kernel::{WrongSysctl, set, wrong};
use super::some;
use crate::doctor::facts::{IPV6_FORWARDING, reverse_path as setting};
use crate::doctor::{Check, Facts, Finding};

/// Value of `rp_filter` for strict filtering.
const STRICT: u32 = 1;

/// Strict filtering drops packets that arrive on another interface than replies leave by: those of clients on a
/// second network, and those from a node's own address that arrive by an overlay.
pub(super) fn reverse_path(facts: &Facts) -> Vec<Finding> {
    let check = Check::ReversePath;
    let Ok(network) = &facts.network else {
        return Vec::new();
    };
    let value = |interface: &str| -> u32 {
        let found = facts.sysctl(&setting(interface));
        found.and_then(|value| value.parse().ok()).unwrap_or(0)
    };
    // The kernel uses the greater of the two values.
    let is_strict = |name: &&str| value(name).max(value("all")) == STRICT;
    let strict: Vec<_> = lossy(facts, network)
        .into_iter()
        .filter(is_strict)
        .collect();
    vec![if strict.is_empty() {
        Finding::ok(
            check,
            "no interface drops packets because of their return path",
        )
    } else {
        let message = format!(
            "packets that arrive on {} are dropped if replies would leave by another interface (rp_filter \
             is 1): clients of node ports on a second network, packets of an overlay",
            some(&strict)
        );
        let settings: Vec<_> = strict
            .iter()
            .map(|name| format!("{}=2", setting(name)))
            .collect();
        let remedy = format!(
            "`sysctl -w {}`: 2 is loose, and overrides 1 in conf/all",
            settings.join(" ")
        );
        Finding::warn(check, message, remedy)
    }]
}

/// Interfaces where packets of Services may arrive although replies leave by another one: those with addresses
/// of the node, if there are several, and those of overlays.
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

/// Pods on one bridge cannot reach each other through a Service unless bridged packets pass the iptables rules.
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
        return vec![Finding::ok(check, "no pods are attached to a bridge")];
    }
    let wrong = wrong(facts, is_of_bridges);
    let message = || {
        format!(
            "pods on the same bridge cannot reach each other through a Service: {}",
            some(wrong.iter().map(WrongSysctl::describe))
        )
    };
    vec![if wrong.is_empty() {
        Finding::ok(check, "bridged packets of pods pass the iptables rules")
    } else if wrong.iter().any(|wrong| wrong.found.is_none()) {
        let remedy = format!("`modprobe br_netfilter`, then {}", set(&wrong));
        Finding::fail(check, message(), remedy)
    } else {
        Finding::fail(check, message(), set(&wrong))
    }]
}

/// Replies of pods to other hosts need forwarding. The agent does not enable it, because the kernel then stops
/// accepting routes from router advertisements (S-239).
fn forwards_no_ipv6(facts: &Facts) -> Option<Finding> {
    let desired = facts.desired()?;
    let mut served = desired.virtual_servers.keys();
    let serves = served.any(|server| server.address.is_ipv6());
    if !serves || facts.sysctl(IPV6_FORWARDING) != Some("0") {
        return None;
    }
    let message = format!(
        "Services have IPv6 addresses, but this node does not forward IPv6 ({IPV6_FORWARDING} is 0): clients on \
         other hosts get no replies from its pods"
    );
    let remedy = format!(
        "`sysctl -w {IPV6_FORWARDING}=1`; if the node gets its default route from router advertisements, also \
         set net.ipv6.conf.INTERFACE.accept_ra=2, or it loses that route"
    );
    Some(Finding::fail(Check::Ipv6, message, remedy))
}

/// A node without IPv6 serves only IPv4, which is a problem only if its plan has IPv6 (S-182).
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
        (Some(_), None) => Finding::ok(check, "IPv6 is off on this node, which serves only IPv4"),
        (Some(why), Some(_)) => {
            let message = format!(
                "IPv6 is off on this node ({why}), but its Node object has IPv6 addresses or pod ranges: \
                 Services are not served at IPv6 addresses"
            );
            let remedy = match why {
                Ipv6Off::NotInKernel => {
                    "boot the kernel without ipv6.disable=1, or remove IPv6 from the Node object"
                }
                Ipv6Off::Disabled => "`sysctl -w net.ipv6.conf.all.disable_ipv6=0`",
            };
            Finding::fail(check, message, remedy)
        }
    }]
}
