//! Selects the node's own addresses that serve node ports (`nodePortAddresses`, S-32 to S-36).

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use portolan_plan::{Family, NodeEntry};

use crate::host::HostNetwork;

/// Selects the node's first address of each family, in the order of its Node object.
const PRIMARY: &str = "primary";
/// Selects every address, like an empty list.
const ALL: &str = "all";

/// The addresses that the settings select. Without a setting, all addresses are selected.
///
/// A family without a range in the settings has no node ports (S-33).
pub fn addresses(node: &NodeEntry, host: &HostNetwork) -> BTreeSet<IpAddr> {
    let selected = &node.settings.node_port_addresses;
    let has = |word: &str| selected.iter().any(|text| text == word);
    let first = |family| {
        let mut own = node.addresses.iter();
        own.find(|address| Family::of(**address) == family && can_have_node_ports(**address))
            .copied()
    };
    let primary = Family::BOTH
        .into_iter()
        .filter(|_| has(PRIMARY))
        .filter_map(first);
    // `localhost` is not a range: the agent itself forwards connections from there.
    let ranges: Vec<IpNet> = selected
        .iter()
        .filter_map(|text| text.parse().ok())
        .collect();
    let everything = selected.is_empty() || has(ALL);
    let is_selected =
        |address: &IpAddr| everything || ranges.iter().any(|range| range.contains(address));
    // Portolan's device is not among the host's interfaces, so no Service address is selected (S-36).
    let all = host.addresses.iter().map(|host| host.address);
    all.filter(|address| can_have_node_ports(*address) && is_selected(address))
        .chain(primary)
        .collect()
}

/// Connections to loopback addresses cannot be masqueraded (S-35), and an IPv6 link-local address belongs to one
/// link.
fn can_have_node_ports(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(address.is_loopback() || link_local)
}

#[cfg(test)]
mod tests {
    use portolan_plan::Settings;

    use super::*;
    use crate::HostAddress;

    fn selected(settings: &[&str]) -> Vec<String> {
        let texts =
            |texts: &[&str]| -> Vec<IpAddr> { texts.iter().flat_map(|t| t.parse()).collect() };
        let node = NodeEntry {
            addresses: texts(&["192.168.1.1", "192.168.1.2", "fd00::1"]),
            settings: Settings {
                node_port_addresses: settings.iter().map(ToString::to_string).collect(),
                ..Settings::default()
            },
            ..NodeEntry::default()
        };
        let own = [
            "127.0.0.1",
            "::1",
            "fe80::1",
            "169.254.20.10",
            "192.168.1.1",
            "192.168.1.2",
            "fd00::1",
        ];
        let address = |address| HostAddress::on("eth0", IpNet::from(address));
        let host = HostNetwork {
            addresses: texts(&own).into_iter().map(address).collect(),
            ..HostNetwork::default()
        };
        addresses(&node, &host)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn primary_is_the_nodes_first_address_of_each_family() {
        assert_eq!(selected(&["primary"]), ["192.168.1.1", "fd00::1"], "S-34");
    }

    #[test]
    fn words_and_ranges_add_up() {
        let all = selected(&[]);
        assert_eq!(selected(&["all"]), all, "S-234");
        assert_eq!(selected(&["primary", "all", "localhost"]), all, "S-234");
        let both = selected(&["primary", "192.168.1.2/32"]);
        assert_eq!(both, ["192.168.1.1", "192.168.1.2", "fd00::1"], "S-234");
        assert_eq!(selected(&["localhost"]), [""; 0], "S-234");
    }

    #[test]
    fn an_address_that_other_hosts_cannot_use_is_never_the_primary_one() {
        let node = NodeEntry {
            addresses: ["127.0.0.1", "fe80::1", "192.168.1.9", "fd00::9"]
                .iter()
                .map(|text| text.parse().unwrap())
                .collect(),
            ..NodeEntry::default()
        };
        let found = addresses(&node, &HostNetwork::default());
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["192.168.1.9", "fd00::9"], "S-34, S-35");
    }

    #[test]
    fn without_a_setting_all_addresses_serve_but_loopback_and_ipv6_link_local() {
        let all = ["169.254.20.10", "192.168.1.1", "192.168.1.2", "fd00::1"];
        assert_eq!(selected(&[]), all, "S-32");
    }

    #[test]
    fn ranges_select_and_a_family_without_one_has_no_node_ports() {
        assert_eq!(selected(&["192.168.1.2/32"]), ["192.168.1.2"], "S-33");
        assert_eq!(selected(&["127.0.0.0/8", "::/0"]), ["fd00::1"], "S-35");
    }
}
