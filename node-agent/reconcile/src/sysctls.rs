//! The kernel settings that a node needs for its plan and its network.
//!
//! Names are those of `sysctl`: with dots, or with slashes if the name contains an interface, because interface names
//! may contain dots.

mod conntrack;
mod ports;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::{Dataplane, LocalDetection, NodeEntry, Protocol};

pub use self::ports::{ports_to_connect_from, ports_warning};
use crate::host::{HostAddress, HostNetwork, InterfaceKind};
use crate::ports::Ports;

/// Settings without which virtual servers do not work as the rules expect (S-83, S-174).
const REQUIRED: [(&str, &str); 4] = [
    ("net.ipv4.ip_forward", "1"),
    ("net.ipv4.vs.conntrack", "1"),
    ("net.ipv4.vs.expire_nodest_conn", "1"),
    ("net.ipv4.vs.expire_quiescent_template", "1"),
];

/// The start of the names of settings of IPVS, which exist only while its module is loaded.
const OF_IPVS: &str = "net.ipv4.vs.";

/// Settings that make a bridge pass switched packets to the rules. Without them, the reply of one pod to another on
/// the same bridge bypasses IPVS and arrives from an address that the client never contacted.
const BRIDGED: [(&str, &str); 2] = [
    ("net.bridge.bridge-nf-call-iptables", "1"),
    ("net.bridge.bridge-nf-call-ip6tables", "1"),
];

/// The kernel settings that a node with these node ports needs, with their values.
pub fn sysctls(
    node: &NodeEntry,
    host: &HostNetwork,
    node_ports: &BTreeSet<(Protocol, u16)>,
) -> BTreeMap<Arc<str>, Arc<str>> {
    let mut wanted: BTreeMap<Arc<str>, Arc<str>> = REQUIRED
        .map(|(name, value)| (name.into(), value.into()))
        .into();
    wanted.extend(conntrack::settings(&node.settings.conntrack, &host.machine));
    // From kernel 5.9 on, reusing a source port no longer costs a second. Before 4.1, the setting does not help.
    if ((4, 1)..(5, 9)).contains(&host.machine.kernel) {
        wanted.insert("net.ipv4.vs.conn_reuse_mode".into(), "0".into());
    }
    if has_bridged_pods(node, host) {
        wanted.extend(BRIDGED.map(|(name, value)| (name.into(), value.into())));
    }
    let own = ports::own(node.settings.node_port_range, &host.machine, node_ports);
    let reserved = own.and(&host.machine.reserved_by_others);
    wanted.insert(RESERVED_PORTS.into(), reserved.to_string().into());
    if node.settings.dataplane != Dataplane::Ipvs {
        wanted.retain(|name, _| !name.starts_with(OF_IPVS));
    }
    wanted
}

/// Ports that the kernel does not use as source ports of its own connections.
pub const RESERVED_PORTS: &str = "net.ipv4.ip_local_reserved_ports";

/// Whether a found value is sufficient. A larger limit or hash table of connection tracking is also fine:
/// administrators may set one (S-220), and the kernel rounds the table size up. Reserved ports are compared as a set.
pub fn is_enough(name: &str, found: &str, wanted: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    match name {
        conntrack::BUCKETS | conntrack::MAX => {
            number(found).is_some_and(|found| Some(found) >= number(wanted))
        }
        RESERVED_PORTS => Ports::parse(found) == Ports::parse(wanted),
        _ => found == wanted,
    }
}

/// Whether pods of this node are connected to a bridge: the settings say so, or a bridge is their gateway.
fn has_bridged_pods(node: &NodeEntry, host: &HostNetwork) -> bool {
    let is_gateway = |address: &HostAddress| {
        let holds = |range: &IpNet| range.contains(&address.address);
        node.pod_cidrs.iter().any(holds)
    };
    let bridges = || {
        let all = host.interfaces.iter();
        all.filter(|interface| interface.kind == InterfaceKind::Bridge)
    };
    matches!(
        node.settings.local_detection,
        LocalDetection::BridgeInterface { .. }
    ) || bridges().any(|bridge| host.addresses_on(&bridge.name).any(is_gateway))
}

#[cfg(test)]
mod tests {
    use portolan_plan::Settings;

    use super::*;
    use crate::host::{HostInterface, Machine};

    fn interface(name: &str, kind: InterfaceKind) -> HostInterface {
        HostInterface {
            name: name.into(),
            kind,
        }
    }

    fn address(interface: &str, text: &str) -> HostAddress {
        HostAddress::on(interface, text.parse().unwrap())
    }

    fn node() -> NodeEntry {
        NodeEntry {
            pod_cidrs: vec!["10.244.1.0/24".parse().unwrap()],
            ..NodeEntry::default()
        }
    }

    fn beside_the_usual(node: &NodeEntry, host: &HostNetwork) -> Vec<String> {
        let usual = |name: &str| {
            let always = REQUIRED.iter().any(|(always, _)| *always == name);
            always || name == RESERVED_PORTS || name.starts_with("net.netfilter.")
        };
        sysctls(node, host, &BTreeSet::new())
            .iter()
            .filter(|(name, _)| !usual(name))
            .map(|(name, value)| format!("{name}={value}"))
            .collect()
    }

    #[test]
    fn old_kernels_use_a_source_port_again_at_once() {
        let mode = |kernel| {
            let host = HostNetwork {
                machine: Machine {
                    kernel,
                    ..Machine::default()
                },
                ..HostNetwork::default()
            };
            sysctls(&node(), &host, &BTreeSet::new())
                .get("net.ipv4.vs.conn_reuse_mode")
                .cloned()
        };
        for kernel in [(4, 1), (4, 19), (5, 8)] {
            assert_eq!(mode(kernel).as_deref(), Some("0"), "S-175: {kernel:?}");
        }
        for kernel in [(0, 0), (3, 10), (4, 0), (5, 9), (6, 1)] {
            assert_eq!(mode(kernel), None, "S-175: {kernel:?}");
        }
    }

    #[test]
    fn larger_limits_are_enough_and_smaller_ones_are_not() {
        for name in [conntrack::BUCKETS, conntrack::MAX] {
            assert!(is_enough(name, "65536", "32768") && is_enough(name, "32768", "32768"));
            assert!(!is_enough(name, "16384", "32768") && !is_enough(name, "", "32768"));
        }
        for found in ["30000-32000", "80,30000-32767", ""] {
            assert!(!is_enough(RESERVED_PORTS, found, "30000-32767"), "S-242");
        }
        assert!(is_enough(
            RESERVED_PORTS,
            "30000-31000,31001-32767",
            "30000-32767"
        ));
        assert!(!is_enough("net.ipv4.vs.conntrack", "2", "1"));
    }

    #[test]
    fn reserved_ports_of_others_stay() {
        let reserved = |others: &str| {
            let machine = Machine {
                reserved_by_others: Ports::parse(others),
                ..Machine::default()
            };
            let host = HostNetwork {
                machine,
                ..HostNetwork::default()
            };
            sysctls(&node(), &host, &BTreeSet::new())[RESERVED_PORTS].to_string()
        };
        assert_eq!(reserved(""), "30000-32767", "S-222");
        let both = "8080,30000-32767,40000-40010";
        assert_eq!(reserved("8080,40000-40010"), both, "S-242");
    }

    #[test]
    fn bridges_call_the_rules_where_pods_hang_on_them() {
        let bridged = [
            "net.bridge.bridge-nf-call-ip6tables=1",
            "net.bridge.bridge-nf-call-iptables=1",
        ];
        let with = |kind, text| HostNetwork {
            interfaces: vec![interface("cni0", kind)],
            addresses: vec![address("cni0", text)],
            ..HostNetwork::default()
        };
        let gateway = with(InterfaceKind::Bridge, "10.244.1.1/24");
        assert_eq!(beside_the_usual(&node(), &gateway), bridged);
        let elsewhere = with(InterfaceKind::Bridge, "172.17.0.1/16");
        assert_eq!(beside_the_usual(&node(), &elsewhere), [""; 0]);
        let routed = with(InterfaceKind::Other, "10.244.1.1/24");
        assert_eq!(beside_the_usual(&node(), &routed), [""; 0]);
        let configured = NodeEntry {
            settings: Settings {
                local_detection: LocalDetection::BridgeInterface {
                    bridge: "cni0".into(),
                },
                ..Settings::default()
            },
            ..NodeEntry::default()
        };
        assert_eq!(
            beside_the_usual(&configured, &HostNetwork::default()),
            bridged
        );
    }
}
