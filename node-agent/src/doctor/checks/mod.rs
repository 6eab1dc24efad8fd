//! The checks: pure functions from facts to findings.

mod iptables;
mod kernel;
mod kube_proxy;
mod load;
mod managers;
mod marks;
mod network;
mod programmed;
mod state;
mod tables;

use std::fmt::Display;

use portolan_plan::Dataplane;

use super::{Facts, Finding};

type CheckFunction = fn(&Facts) -> Vec<Finding>;

/// The checks in the order of the report, and the dataplane for which each is; `None` for both. A check comes after those
/// of its dependencies.
const CHECKS: [(Option<Dataplane>, CheckFunction); 25] = [
    (Some(Dataplane::Ipvs), kernel::modules),
    (Some(Dataplane::Ipvs), kernel::ipvs),
    (None, kernel::sysctls),
    (None, network::reverse_path),
    (None, network::bridges),
    (None, network::ipv6),
    (Some(Dataplane::Ipvs), iptables::variants),
    (Some(Dataplane::Ipvs), marks::packet_mark),
    (None, iptables::nftables),
    (None, managers::network_managers),
    (None, kube_proxy::leftovers),
    (Some(Dataplane::Ipvs), programmed::device),
    (Some(Dataplane::Ipvs), programmed::routes),
    (Some(Dataplane::Ipvs), programmed::sets),
    (Some(Dataplane::Ipvs), programmed::rules),
    (Some(Dataplane::Ipvs), programmed::virtual_servers),
    (Some(Dataplane::Nftables), tables::tables),
    (None, load::conntrack),
    (None, load::connect_ports),
    (Some(Dataplane::Ipvs), load::connection_table),
    (Some(Dataplane::Ipvs), load::rate_estimation),
    (None, state::clock),
    (None, state::directory),
    (None, state::plan_and_record),
    (None, state::controller),
];

/// A warning for the start of the agent: enlarging the connection table requires reloading IPVS (S-195).
pub(super) fn hint(connection_table_bits: u32) -> Option<String> {
    let finding = load::of_table(connection_table_bits);
    let remedy = finding.remedy?;
    Some(format!("{}: {remedy}", finding.message))
}

pub(super) fn all(facts: &Facts) -> Vec<Finding> {
    let dataplane = facts.node_or_default().settings.dataplane;
    let is_for_it = |of: &Option<Dataplane>| of.is_none_or(|of| of == dataplane);
    let checks = CHECKS.iter().filter(|(of, _)| is_for_it(of));
    checks.flat_map(|(_, check)| check(facts)).collect()
}

/// The remedy for problems that a running agent repairs.
const REPAIRED_BY_AGENT: &str = "start the agent; if it is running, its log names the cause (with \
                                 spec.settings.drift Report of the ProxyConfig it repairs nothing)";

/// Missing privileges are the most likely reason that something cannot be read.
fn unless_privileged(facts: &Facts, remedy: &str) -> String {
    match facts.privileged {
        Ok(false) => "run this as root, or with CAP_NET_ADMIN".into(),
        Ok(true) | Err(_) => remedy.into(),
    }
}

/// Maximum number of items that a message names; the rest are counted.
const MAX_NAMED: usize = 4;

/// Lists the first [`MAX_NAMED`] items: `a, b, c, d and 7 more`.
fn some<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<_> = items.into_iter().map(|item| item.to_string()).collect();
    match items.get(..MAX_NAMED) {
        Some(named) if items.len() > MAX_NAMED => {
            format!("{} and {} more", named.join(", "), items.len() - MAX_NAMED)
        }
        _ => items.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_named_and_the_rest_counted() {
        assert_eq!(some([1]), "1");
        assert_eq!(some(1..=4), "1, 2, 3, 4");
        assert_eq!(some(1..=9), "1, 2, 3, 4 and 5 more");
        assert_eq!(some::<u8>([]), "");
    }
}
