//! Differences between the saved plan and the kernel. Without a plan nothing can be missing.

use std::net::IpAddr;

use ipnet::IpNet;
use portolan_plan::Family;
use portolan_reconcile::rules::{ObservedRules, Rules};
use portolan_reconcile::{Desired, Network, SetRole, VirtualServerKey};

use super::{REPAIRED_BY_AGENT, some, unless_privileged};
use crate::doctor::{Check, Facts, Finding};

/// The dummy device that the routes to service ranges use.
pub(super) fn device(facts: &Facts) -> Vec<Finding> {
    let (check, device) = (Check::Device, &facts.device);
    let network = match &facts.network {
        Ok(network) => network,
        Err(reason) => {
            let message = format!("links, addresses and routes cannot be read: {reason}");
            return vec![Finding::fail(
                check,
                message,
                "run this as root, on the node's own network",
            )];
        }
    };
    if facts.desired().is_none() {
        return Vec::new();
    }
    vec![if network.device_up {
        Finding::ok(check, format!("{device} is up"))
    } else {
        let message =
            format!("{device} is missing or down, so there are no routes to service ranges");
        let remedy = format!("`ip link set {device} up` if it exists; else {REPAIRED_BY_AGENT}");
        Finding::fail(check, message, remedy)
    }]
}

/// Missing routes and policy rules, and conflicts with a service range (S-30).
pub(super) fn routes(facts: &Facts) -> Vec<Finding> {
    let check = Check::Routes;
    let (Ok(network), Some(desired)) = (&facts.network, facts.desired()) else {
        return Vec::new();
    };
    let own = own_cluster_ip(&desired, network);
    let mut findings: Vec<_> = shadows(&desired, network, own).collect();
    findings.extend(own.map(left_to_a_program));
    // A device that is down has no routes, and has a check of its own.
    if network.device_up {
        findings.extend(missing_routes(facts, &desired, network));
    }
    if findings.is_empty() {
        let message = format!(
            "all {} routes and all {} policy rules are present",
            desired.routes.len(),
            desired.policy.len()
        );
        findings.push(Finding::ok(check, message));
    }
    findings
}

fn missing_routes(facts: &Facts, desired: &Desired, network: &Network) -> Vec<Finding> {
    let missing: Vec<_> = desired.routes.difference(&network.routes).collect();
    let mut findings = Vec::new();
    if let Some(first) = missing.first() {
        let message = format!("routes are missing: {}", some(&missing));
        let (family, first) = (option(first.family()), first.text(&facts.device));
        let remedy = format!("`ip{family} route add {first}` and so on, or {REPAIRED_BY_AGENT}");
        findings.push(Finding::fail(Check::Routes, message, remedy));
    }
    let missing: Vec<_> = desired.policy.difference(&network.policy).collect();
    if let Some(first) = missing.first() {
        let message = format!(
            "policy rules are missing, so packets to Services do not reach IPVS: {}",
            some(&missing)
        );
        let family = option(first.family);
        let remedy = format!("`ip{family} rule add {first}` and so on, or {REPAIRED_BY_AGENT}");
        findings.push(Finding::fail(Check::Routes, message, remedy));
    }
    findings
}

/// NodeLocal DNSCache assigns the cluster IP of the DNS Service to an interface of the node. It is bypassed if the
/// agent serves that Service there as well (S-240).
fn own_cluster_ip(desired: &Desired, network: &Network) -> Option<IpAddr> {
    let is_cluster_ip = |server: &&VirtualServerKey| {
        let mut ranges = desired.service_ranges.iter();
        ranges.any(|range| range.contains(&server.address)) && network.host.owns(server.address)
    };
    let mut servers = desired.virtual_servers.keys();
    servers.find(is_cluster_ip).map(|server| server.address)
}

fn left_to_a_program(address: IpAddr) -> Finding {
    let message = format!(
        "cluster IP {address} is assigned to an interface of this node, but a program that listens there, such as \
         NodeLocal DNSCache, gets no packets: the Service's endpoints get them"
    );
    let range = IpNet::from(address);
    let remedy = format!(
        "add {range} to spec.settings.excludeCIDRs of the ProxyConfig to leave the Service to that program"
    );
    Finding::warn(Check::Routes, message, remedy)
}

/// The option of `ip` for a family.
fn option(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "",
        Family::Ipv6 => " -6",
    }
}

/// Where addresses or routes of the node overlap a service range, connections to unused addresses and ports of that
/// range are not rejected. A cluster IP assigned to the node has a finding of its own.
fn shadows<'a>(
    desired: &'a Desired,
    network: &'a Network,
    own: Option<IpAddr>,
) -> impl Iterator<Item = Finding> + 'a {
    let host = &network.host;
    let ranges = desired.service_ranges.iter();
    ranges.filter_map(move |range| {
        if host.leaves_free(range) {
            return None;
        }
        let inside = host.routes.iter().map(|route| route.destination);
        let inside = inside.filter(|destination| range.contains(destination));
        let routes = inside.map(|destination| format!("the route to {destination}"));
        let addresses = host.addresses.iter().filter(|host| {
            range.contains(&host.address) && own != Some(host.address)
        });
        let addresses =
            addresses.map(|host| format!("address {} on {}", host.address, host.interface));
        let gateways = host.routes.iter().filter_map(|route| route.gateway);
        let gateways = gateways.filter(|gateway| range.contains(gateway));
        let gateways = gateways.map(|gateway| format!("next hop {gateway}"));
        let mut inside = routes.chain(addresses).chain(gateways).peekable();
        inside.peek()?;
        let message = format!(
            "the service range {range} overlaps {}: connections to its addresses and ports that no Service \
             uses are not rejected",
            some(inside)
        );
        let remedy = "remove it (`ip route show table all` shows its device and protocol), or change its range or \
                      that of the Services";
        Some(Finding::warn(Check::Routes, message, remedy))
    })
}

/// The agent's sets.
pub(super) fn sets(facts: &Facts) -> Vec<Finding> {
    let check = Check::Sets;
    let sets = match &facts.sets {
        Ok(sets) => sets,
        Err(reason) => {
            let remedy = unless_privileged(facts, "`modprobe ip_set`");
            return vec![Finding::fail(
                check,
                format!("cannot read sets: {reason}"),
                remedy,
            )];
        }
    };
    let Some(desired) = facts.desired() else {
        return Vec::new();
    };
    let missing: Vec<_> = desired
        .sets
        .keys()
        .filter(|id| !sets.own.contains_key(id))
        .collect();
    if !missing.is_empty() {
        let message = format!("sets are missing: {}", some(missing));
        return vec![Finding::fail(check, message, REPAIRED_BY_AGENT)];
    }
    // Entries of the hold set are temporary and not part of a plan.
    let planned = desired
        .sets
        .iter()
        .filter(|(id, _)| id.role != SetRole::Hold);
    let different = planned.filter_map(|(id, wanted)| {
        let held = &sets.own.get(id)?.entries;
        let count = held.symmetric_difference(&wanted.entries).count();
        (count > 0).then(|| format!("{id} in {count}"))
    });
    let different: Vec<_> = different.collect();
    vec![if different.is_empty() {
        let message = format!("all {} sets of the plan are present", desired.sets.len());
        Finding::ok(check, message)
    } else {
        let message = format!("set entries differ from the plan: {}", some(different));
        Finding::warn(check, message, behind())
    }]
}

/// The saved plan may be a few seconds older than the current one.
pub(super) fn behind() -> String {
    format!(
        "run this again in 15 s, since the saved plan may be outdated; if it persists, {REPAIRED_BY_AGENT}"
    )
}

/// The agent's iptables rules.
pub(super) fn rules(facts: &Facts) -> Vec<Finding> {
    let check = Check::Rules;
    let (Ok(tables), Some(desired)) = (&facts.tables, facts.desired()) else {
        return Vec::new();
    };
    let wrong = |rules: &Rules| {
        let mut all = facts.rules();
        let (.., saved) =
            all.find(|(variant, family, _)| (*variant, *family) == (tables.used, rules.family))?;
        let found = ObservedRules::parse(saved);
        let different = found.differences(&rules.expected());
        if found.is_empty() && desired.idle.contains(&rules.family) {
            return None;
        }
        if found.is_empty() {
            return Some(format!("no {} rules of the agent are loaded", rules.family));
        }
        let different = different
            .iter()
            .map(|(table, what)| format!("{table} {what}"));
        let different = some(different);
        (!different.is_empty())
            .then(|| format!("{} rules differ from the plan's: {different}", rules.family))
    };
    let wrong: Vec<_> = desired.rules.iter().filter_map(wrong).collect();
    vec![if wrong.is_empty() {
        Finding::ok(check, "the iptables rules match the plan")
    } else {
        Finding::fail(check, wrong.join("; "), REPAIRED_BY_AGENT)
    }]
}

/// The agent's virtual servers.
pub(super) fn virtual_servers(facts: &Facts) -> Vec<Finding> {
    let check = Check::VirtualServers;
    let (Ok(servers), Some(desired)) = (&facts.servers, facts.desired()) else {
        return Vec::new();
    };
    let wanted = &desired.virtual_servers;
    let missing: Vec<_> = wanted
        .keys()
        .filter(|server| !servers.contains_key(server))
        .collect();
    let empty: Vec<_> = wanted
        .iter()
        .filter(|(server, wanted)| {
            let held = servers.get(server);
            held.is_some_and(|held| held.real_servers.is_empty()) && !wanted.real_servers.is_empty()
        })
        .map(|(server, _)| server)
        .collect();
    vec![if !missing.is_empty() && missing.len() == wanted.len() {
        let count = wanted.len();
        let message = format!("none of the {count} virtual servers in the plan is present");
        Finding::fail(check, message, REPAIRED_BY_AGENT)
    } else if !missing.is_empty() {
        let message = format!(
            "{} of {} virtual servers in the plan are missing: {}",
            missing.len(),
            wanted.len(),
            some(missing)
        );
        Finding::warn(check, message, behind())
    } else if !empty.is_empty() {
        let message = format!(
            "virtual servers have endpoints in the plan, but no real server in the kernel: {}",
            some(empty)
        );
        Finding::warn(check, message, behind())
    } else {
        let count = wanted.len();
        let message = format!("all {count} virtual servers in the plan are present");
        Finding::ok(check, message)
    }]
}
