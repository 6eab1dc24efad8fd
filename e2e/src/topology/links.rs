//! The cables, addresses and routes of the lab as input of `ip -batch`: pure text, one batch per
//! namespace, in the order in which they are applied.
//!
//! Pods hang on routed cables, so that every packet between them passes the node's hooks, or on
//! one bridge of their node. The underlay is a bridge in a namespace of its own.

use super::world::{
    EXTERNAL_V4, EXTERNAL_V6, Family, Node, OUTSIDE, Pod, SERVICES_V4, SERVICES_V6, outside_address,
};

/// How the nodes reach each other's pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// Static routes over the underlay.
    Routed,
    /// A VXLAN device per node, as flannel makes it, under strict reverse path filters.
    Vxlan,
    /// Static routes over the underlay; the pods of a node share one bridge and reach each other
    /// without their node.
    Bridged,
}

impl Network {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Routed, Self::Vxlan, Self::Bridged];

    /// Its name in tables and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Routed => "routed",
            Self::Vxlan => "vxlan",
            Self::Bridged => "bridged",
        }
    }

    /// The largest packet that pods may send.
    fn pod_mtu(self) -> u16 {
        match self {
            Self::Routed | Self::Bridged => 1500,
            // 50 bytes of outer IPv4, UDP and VXLAN headers and the inner Ethernet header.
            Self::Vxlan => 1450,
        }
    }
}

/// The namespace of the underlay's bridge.
pub(crate) const UNDERLAY: &str = "underlay";
const OVERLAY_DEVICE: &str = "overlay";
/// The bridge of a node's pods, with the name that most plugins use.
pub(crate) const BRIDGE: &str = "cni0";

/// The names of all namespaces, without prefix.
pub(crate) fn namespaces() -> Vec<String> {
    let nodes = Node::ALL.iter().map(|node| node.name().to_owned());
    let pods = Pod::all().map(Pod::name);
    [UNDERLAY.to_owned(), OUTSIDE.to_owned()]
        .into_iter()
        .chain(nodes)
        .chain(pods)
        .collect()
}

/// Input of `ip -n PREFIX+namespace -batch -`, in order.
pub(crate) fn batches(network: Network, prefix: &str) -> Vec<(String, String)> {
    let mut batches = vec![(UNDERLAY.to_owned(), underlay(prefix))];
    batches
        .extend(Node::ALL.map(|node| (node.name().to_owned(), self::node(node, network, prefix))));
    batches.extend(Pod::all().map(|pod| (pod.name(), self::pod(pod, network))));
    batches.push((OUTSIDE.to_owned(), outside()));
    batches
}

/// A batch for a kernel without IPv6. Each IPv6 address of the lab has a gap, and nothing else has.
pub(crate) fn without_ipv6(batch: &str) -> String {
    let of_ipv4 = batch.lines().filter(|line| !line.contains("::"));
    of_ipv4.flat_map(|line| [line, "\n"]).collect()
}

/// Whether a setting is one that a kernel without IPv6 does not have.
pub(crate) fn is_of_ipv6(setting: &str) -> bool {
    setting.starts_with("net/ipv6/")
}

fn underlay(prefix: &str) -> String {
    // Snooping would hold back neighbour solicitations until the bridge has learnt its groups.
    let mut text = "link add br0 type bridge mcast_snooping 0\nlink set br0 up\n".to_owned();
    for member in [Node::A.name(), Node::B.name(), OUTSIDE] {
        text += &format!(
            "link add {member} type veth peer name eth0 netns {prefix}{member}\n\
             link set {member} master br0 up\n"
        );
    }
    text
}

fn node(node: Node, network: Network, prefix: &str) -> String {
    let mut text = "link set lo up\nlink set eth0 up\n".to_owned();
    for family in Family::ALL {
        let bits = if family == Family::IPv4 { 24 } else { 64 };
        let address = node.address(family);
        text += &format!("address add {address}/{bits} dev eth0 nodad\n");
    }
    text += &match network {
        Network::Routed | Network::Vxlan => cables(node, network, prefix),
        Network::Bridged => bridge(node, network, prefix),
    };
    text += &to_the_other_node(node, network);
    // As on real nodes, the default route leads outside.
    for family in Family::ALL {
        text += &format!("route add default via {}\n", outside_address(family));
    }
    text
}

/// A routed cable to each pod.
fn cables(node: Node, network: Network, prefix: &str) -> String {
    let mut text = String::new();
    for pod in Pod::on(node) {
        text += &cable(pod, network, prefix);
        for family in Family::ALL {
            let (gateway, bits) = (node.gateway(family), family.host_bits());
            let (cable, address) = (pod.cable(), pod.address(family));
            text += &format!(
                "address add {gateway}/{bits} dev {cable} nodad\n\
                 route add {address}/{bits} dev {cable} src {gateway}\n"
            );
        }
    }
    text
}

fn cable(pod: Pod, network: Network, prefix: &str) -> String {
    let (cable, peer, mtu) = (pod.cable(), pod.name(), network.pod_mtu());
    format!(
        "link add {cable} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {prefix}{peer}\n\
         link set {cable} up\n"
    )
}

/// The bridge that all pods of a node hang on; the gateway's address is on it.
fn bridge(node: Node, network: Network, prefix: &str) -> String {
    // An address of its own: else it would take the lowest of its members, again and again.
    let mut text = format!(
        "link add {BRIDGE} address 02:00:00:00:01:{:02x} mtu {} type bridge mcast_snooping 0\n\
         link set {BRIDGE} up\n",
        node.number(),
        network.pod_mtu(),
    );
    for family in Family::ALL {
        let (gateway, bits) = (node.gateway(family), family.range_bits());
        text += &format!("address add {gateway}/{bits} dev {BRIDGE} nodad\n");
    }
    for pod in Pod::on(node) {
        text += &cable(pod, network, prefix);
        text += &format!(
            "link set {0} master {BRIDGE}\nlink set {0} type bridge_slave hairpin on\n",
            pod.cable()
        );
    }
    text
}

fn to_the_other_node(node: Node, network: Network) -> String {
    let other = node.other();
    let mut text = String::new();
    if network == Network::Vxlan {
        let (local, remote) = (node.address(Family::IPv4), other.address(Family::IPv4));
        text += &format!(
            "link add {OVERLAY_DEVICE} address {} mtu {} type vxlan id 1 dstport 8472 \
             local {local} remote {remote} dev eth0 nolearning noudpcsum\n\
             link set {OVERLAY_DEVICE} up\n",
            overlay_mac(node),
            network.pod_mtu(),
        );
    }
    for family in Family::ALL {
        let range = other.pod_range(family);
        match network {
            Network::Routed | Network::Bridged => {
                text += &format!("route add {range} via {}\n", other.address(family));
            }
            Network::Vxlan => {
                let (mine, theirs) = (node.overlay(family), other.overlay(family));
                let (bits, mac) = (family.host_bits(), overlay_mac(other));
                text += &format!(
                    "address add {mine}/{bits} dev {OVERLAY_DEVICE} nodad\n\
                     neighbour add {theirs} lladdr {mac} dev {OVERLAY_DEVICE} nud permanent\n\
                     route add {range} via {theirs} dev {OVERLAY_DEVICE} onlink\n"
                );
            }
        }
    }
    text
}

fn overlay_mac(node: Node) -> String {
    format!("02:00:00:00:00:{:02x}", node.number())
}

fn pod(pod: Pod, network: Network) -> String {
    let mut text = "link set lo up\nlink set eth0 up\n".to_owned();
    for family in Family::ALL {
        let (address, gateway) = (pod.address(family), pod.node.gateway(family));
        if network == Network::Bridged {
            let bits = family.range_bits();
            text += &format!("address add {address}/{bits} dev eth0 nodad\n");
        } else {
            let bits = family.host_bits();
            text += &format!(
                "address add {address}/{bits} dev eth0 nodad\n\
                 route add {gateway}/{bits} dev eth0\n"
            );
        }
        text += &format!("route add default via {gateway} dev eth0\n");
    }
    text
}

fn outside() -> String {
    let mut text = "link set lo up\nlink set eth0 up\n".to_owned();
    for (family, bits, services, external) in [
        (Family::IPv4, 24, SERVICES_V4, EXTERNAL_V4),
        (Family::IPv6, 64, SERVICES_V6, EXTERNAL_V6),
    ] {
        let (address, node) = (outside_address(family), Node::A.address(family));
        text += &format!(
            "address add {address}/{bits} dev eth0 nodad\n\
             route add {services} via {node}\n\
             route add {external} via {node}\n"
        );
    }
    text
}

/// Kernel settings of a namespace, below `/proc/sys`, before it gets any device.
pub(crate) fn settings(namespace: &str, network: Network) -> Vec<(String, &'static str)> {
    let mut settings = Vec::new();
    for scope in ["all", "default"] {
        settings.push((format!("net/ipv6/conf/{scope}/disable_ipv6"), "0"));
        // Addresses are ours alone: no second of silence while duplicates are looked for.
        settings.push((format!("net/ipv6/conf/{scope}/accept_dad"), "0"));
        settings.push((format!("net/ipv6/conf/{scope}/accept_ra"), "0"));
        let strict = if network == Network::Vxlan { "1" } else { "0" };
        settings.push((format!("net/ipv4/conf/{scope}/rp_filter"), strict));
        if Node::ALL.iter().any(|node| node.name() == namespace) {
            settings.push((format!("net/ipv4/conf/{scope}/forwarding"), "1"));
            settings.push((format!("net/ipv6/conf/{scope}/forwarding"), "1"));
        }
    }
    // The kernel sends six ICMP errors to a peer at once and then one a second. What is checked
    // here is which packets are refused, so that limit is off.
    settings.push(("net/ipv4/icmp_ratelimit".to_owned(), "0"));
    settings.push(("net/ipv6/icmp/ratelimit".to_owned(), "0"));
    // Lets the traffic clients ping through datagram sockets.
    settings.push(("net/ipv4/ping_group_range".to_owned(), "0 2147483647"));
    settings
}

/// Bridged packets do not pass iptables rules. On the underlay they would hide missing
/// masquerading, and for bridges of pods the agent has to enable it.
pub(crate) const BRIDGE_FILTERS: [&str; 3] = [
    "net/bridge/bridge-nf-call-iptables",
    "net/bridge/bridge-nf-call-ip6tables",
    "net/bridge/bridge-nf-call-arptables",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_namespace_but_none_other_gets_a_batch() {
        for network in Network::ALL {
            let mut named: Vec<_> = batches(network, "x-")
                .into_iter()
                .map(|batch| batch.0)
                .collect();
            let mut all = namespaces();
            named.sort();
            all.sort();
            assert_eq!(named, all);
        }
    }

    #[test]
    fn only_the_overlay_has_a_vxlan_device_and_strict_filters() {
        let text = |network| {
            batches(network, "x-")
                .into_iter()
                .map(|batch| batch.1)
                .collect::<String>()
        };
        assert!(!text(Network::Routed).contains("vxlan"));
        assert_eq!(text(Network::Vxlan).matches("type vxlan").count(), 2);
        let strict = ("net/ipv4/conf/all/rp_filter".to_owned(), "1");
        assert!(settings("node-a", Network::Vxlan).contains(&strict));
        assert!(!settings("node-a", Network::Routed).contains(&strict));
    }

    #[test]
    fn a_kernel_without_ipv6_is_asked_for_none() {
        for network in Network::ALL {
            for (name, batch) in batches(network, "x-") {
                let rest = without_ipv6(&batch);
                let ranges = ["fd00:", "2001:db8:"];
                assert!(
                    !ranges.iter().any(|range| rest.contains(range)),
                    "{name}: {rest}"
                );
                let of_ipv4 =
                    |text: &str| text.matches("10.244.").count() + text.matches("link ").count();
                assert_eq!(of_ipv4(&rest), of_ipv4(&batch), "{name}");
            }
        }
        let kept = settings("node-a", Network::Vxlan);
        let mut kept = kept.iter().filter(|(name, _)| !is_of_ipv6(name));
        assert!(kept.all(|(name, _)| name.starts_with("net/ipv4/")));
    }

    #[test]
    fn pods_of_a_bridge_reach_each_other_without_their_node() {
        let of = |name: &str| {
            let mut all = batches(Network::Bridged, "x-").into_iter();
            all.find(|batch| batch.0 == name).unwrap().1
        };
        assert_eq!(of("node-a").matches("master cni0").count(), 3);
        assert!(of("node-a").contains("address add 10.244.1.1/24 dev cni0"));
        assert!(of("pod-a1").contains("address add 10.244.1.11/24 dev eth0"));
        assert!(of("pod-a1").contains("address add fd00:10:244:1::11/64 dev eth0"));
    }
}
