//! The kernel settings that a node needs, by its plan and its network.
//!
//! Names are those of `sysctl`: with dots, or with slashes where an interface is named, because
//! interface names may hold dots.

mod conntrack;

use std::collections::BTreeMap;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::{LocalDetection, NodeEntry};

use crate::host::{HostAddress, HostInterface, HostNetwork, InterfaceKind};

/// Without these, virtual servers do not work as the rules expect (S-83, S-174).
const ALWAYS: [(&str, &str); 4] = [
    ("net.ipv4.ip_forward", "1"),
    ("net.ipv4.vs.conntrack", "1"),
    ("net.ipv4.vs.expire_nodest_conn", "1"),
    ("net.ipv4.vs.expire_quiescent_template", "1"),
];

/// Makes a bridge hand to the rules what it switches. Else the answer of one pod to another on the
/// same bridge goes past IPVS, and comes from an address that the client never asked.
const BRIDGED: [(&str, &str); 2] = [
    ("net.bridge.bridge-nf-call-iptables", "1"),
    ("net.bridge.bridge-nf-call-ip6tables", "1"),
];

/// The kernel settings that this node needs, with their values.
pub fn sysctls(node: &NodeEntry, host: &HostNetwork) -> BTreeMap<Arc<str>, Arc<str>> {
    let mut wanted: BTreeMap<Arc<str>, Arc<str>> = ALWAYS
        .map(|(name, value)| (name.into(), value.into()))
        .into();
    wanted.extend(conntrack::settings(&node.settings.conntrack, &host.machine));
    // From 5.9 on a source port that is used again costs no second; before 4.1 nothing can be done.
    if ((4, 1)..(5, 9)).contains(&host.machine.kernel) {
        wanted.insert("net.ipv4.vs.conn_reuse_mode".into(), "0".into());
    }
    if has_bridged_pods(node, host) {
        wanted.extend(BRIDGED.map(|(name, value)| (name.into(), value.into())));
    }
    if node.settings.strict_arp {
        let facing = host.interfaces.iter().filter(|i| faces_a_lan(i, host));
        wanted.extend(facing.flat_map(|interface| strict_arp(&interface.name)));
    }
    wanted
}

/// Answer ARP only for addresses of the interface that was asked, and ask with no others: nobody
/// but its owner answers for a balancer's address (S-18, S-176). For IPv6 nothing is needed, a
/// route alone makes nobody answer for its addresses.
fn strict_arp(interface: &str) -> [(Arc<str>, Arc<str>); 2] {
    let setting = |name, value: &str| {
        let name: Arc<str> = format!("net/ipv4/conf/{interface}/{name}").into();
        (name, value.into())
    };
    [setting("arp_ignore", "1"), setting("arp_announce", "2")]
}

/// Whether a value that was found will do. Who asks for even stricter ARP gets it: of `arp_ignore`,
/// 2 looks at the sender's network, too, and 8 answers nobody. But 3 answers for more than 1 does,
/// and 4 to 7 have no meaning. Nothing is stricter than 2 of `arp_announce`. A larger hash table is as
/// good; the kernel rounds its size up, too.
pub fn is_enough(name: &str, found: &str, wanted: &str) -> bool {
    let stricter = name.ends_with("/arp_ignore") && matches!((wanted, found), ("1", "2" | "8"));
    let number = |text: &str| text.parse::<u64>().ok();
    let larger = name == conntrack::BUCKETS
        && number(found).is_some_and(|found| Some(found) >= number(wanted));
    found == wanted || stricter || larger
}

/// Interfaces that lead to pods are left as they are: their owner may want the node to answer there
/// for addresses that it has elsewhere (S-177).
fn faces_a_lan(interface: &HostInterface, host: &HostNetwork) -> bool {
    let has_lan = || {
        let mut addresses = host.addresses_on(&interface.name);
        addresses.any(|address| address.address.is_ipv4() && !address.is_single())
    };
    interface.arp && (interface.kind != InterfaceKind::Veth || has_lan())
}

/// Whether pods of this node hang on a bridge: the settings say so, or a bridge is their gateway.
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
    use crate::host::Machine;

    fn interface(name: &str, kind: InterfaceKind) -> HostInterface {
        HostInterface {
            name: name.into(),
            kind,
            arp: true,
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
            let always = ALWAYS.iter().any(|(always, _)| *always == name);
            always || name.starts_with("net.netfilter.")
        };
        sysctls(node, host)
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
            sysctls(&node(), &host)
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
    fn a_larger_hash_table_will_do_and_another_limit_will_not() {
        assert!(
            is_enough(conntrack::BUCKETS, "65536", "32768")
                && is_enough(conntrack::BUCKETS, "32768", "32768")
        );
        assert!(
            !is_enough(conntrack::BUCKETS, "16384", "32768")
                && !is_enough(conntrack::BUCKETS, "", "32768")
        );
        assert!(!is_enough(
            "net.netfilter.nf_conntrack_max",
            "65536",
            "32768"
        ));
    }

    #[test]
    fn arp_is_strict_on_what_faces_a_lan_and_left_alone_on_what_leads_to_pods() {
        use InterfaceKind::{Bridge, Other, Veth};
        let silent = |name| HostInterface {
            arp: false,
            ..interface(name, Other)
        };
        let mut host = HostNetwork {
            interfaces: vec![
                silent("lo"),
                silent("tun0"),
                interface("eth0", Other),
                interface("eth0.100", Other),
                interface("docker0", Bridge),
                // A node that is itself a container has a cable for its LAN.
                interface("net0", Veth),
                interface("pod1", Veth),
                interface("pod2", Veth),
            ],
            addresses: vec![
                address("lo", "127.0.0.1/8"),
                address("net0", "172.18.0.2/16"),
                address("pod1", "10.244.1.1/32"),
                address("pod2", "fe80::1/64"),
            ],
            ..HostNetwork::default()
        };
        let strict = |name: &str| {
            let setting = |rest| format!("net/ipv4/conf/{name}/{rest}");
            [setting("arp_announce=2"), setting("arp_ignore=1")]
        };
        let names = ["docker0", "eth0", "eth0.100", "net0"];
        let mut wanted = names.map(strict).concat();
        wanted.sort();
        let mut found = beside_the_usual(&node(), &host);
        found.sort();
        assert_eq!(found, wanted, "S-176, S-177");
        host.interfaces.clear();
        assert_eq!(beside_the_usual(&node(), &host), [""; 0]);
    }

    #[test]
    fn stricter_arp_than_ours_stays_and_nothing_else_may_differ() {
        let ignore = "net/ipv4/conf/eth0/arp_ignore";
        assert!(is_enough(ignore, "1", "1"));
        for strict in ["2", "8"] {
            assert!(is_enough(ignore, strict, "1"), "S-176: {strict}");
        }
        for lax in ["", "0", "3", "4", "5", "6", "7", "9"] {
            assert!(!is_enough(ignore, lax, "1"), "S-176: {lax}");
        }
        let announce = "net/ipv4/conf/eth0/arp_announce";
        assert!(is_enough(announce, "2", "2"));
        for other in ["0", "1", "3", "8"] {
            assert!(!is_enough(announce, other, "2"), "S-176: {other}");
        }
        assert!(!is_enough("net.ipv4.vs.conntrack", "2", "1"));
    }

    #[test]
    fn arp_is_left_alone_where_the_settings_say_so() {
        let lax = NodeEntry {
            settings: Settings {
                strict_arp: false,
                ..Settings::default()
            },
            ..node()
        };
        let host = HostNetwork {
            interfaces: vec![interface("eth0", InterfaceKind::Other)],
            ..HostNetwork::default()
        };
        assert_eq!(beside_the_usual(&lax, &host), [""; 0], "S-176");
    }

    #[test]
    fn bridges_call_the_rules_where_pods_hang_on_them() {
        let bridged = [
            "net.bridge.bridge-nf-call-ip6tables=1",
            "net.bridge.bridge-nf-call-iptables=1",
        ];
        let quiet = |name, kind| HostInterface {
            arp: false,
            ..interface(name, kind)
        };
        let with = |kind, text| HostNetwork {
            interfaces: vec![quiet("cni0", kind)],
            addresses: vec![address("cni0", text)],
            ..HostNetwork::default()
        };
        let gateway = with(InterfaceKind::Bridge, "10.244.1.1/24");
        assert_eq!(beside_the_usual(&node(), &gateway), bridged);
        let elsewhere = with(InterfaceKind::Bridge, "172.17.0.1/16");
        assert_eq!(beside_the_usual(&node(), &elsewhere), [""; 0]);
        let routed = with(InterfaceKind::Other, "10.244.1.1/24");
        assert_eq!(beside_the_usual(&node(), &routed), [""; 0]);
        let said = NodeEntry {
            settings: Settings {
                local_detection: LocalDetection::BridgeInterface {
                    bridge: "cni0".into(),
                },
                ..Settings::default()
            },
            ..NodeEntry::default()
        };
        assert_eq!(beside_the_usual(&said, &HostNetwork::default()), bridged);
    }
}
