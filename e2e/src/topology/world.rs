//! Residents of the lab and their addresses: two nodes in two zones, three pods on each, one
//! external client. Pure data; manifests and tables use the same addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Deserialize;

/// The IPv4 service range that nodes route and external clients send to node-a.
pub const SERVICES_V4: &str = "10.96.0.0/12";
/// The IPv6 service range.
pub const SERVICES_V6: &str = "fd00:10:96::/112";
/// Where balancers' addresses and external IPs of the lab are; external clients send these to node-a too.
pub const EXTERNAL_V4: &str = "203.0.113.0/24";
/// The same over IPv6.
pub const EXTERNAL_V6: &str = "2001:db8:113::/64";
/// Where all pods of all nodes have their addresses.
pub const PODS_V4: &str = "10.244.0.0/16";
/// The same over IPv6.
pub const PODS_V6: &str = "fd00:10:244::/48";
/// Pods of each node, numbered from 1.
pub const PODS_PER_NODE: u8 = 3;

/// A node of the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// node-a, in zone-1; external clients enter the service ranges here.
    A,
    /// node-b, in zone-2.
    B,
}

impl Node {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::A, Self::B];

    /// The name of its Node object and of its namespace.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "node-a",
            Self::B => "node-b",
        }
    }

    /// Its zone.
    #[must_use]
    pub fn zone(self) -> &'static str {
        match self {
            Self::A => "zone-1",
            Self::B => "zone-2",
        }
    }

    /// One of its pods, by number.
    pub(crate) const fn pod(self, number: u8) -> Pod {
        Pod { node: self, number }
    }

    pub(crate) fn letter(self) -> char {
        match self {
            Self::A => 'a',
            Self::B => 'b',
        }
    }

    /// 1 or 2, as in its pod ranges.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::A => 1,
            Self::B => 2,
        }
    }

    pub(crate) fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// Its address on the underlay, as in the Node's `status.addresses`.
    #[must_use]
    pub fn address(self, family: Family) -> IpAddr {
        underlay(family, 10 + self.number())
    }

    /// The address that its pods know as their gateway.
    #[must_use]
    pub fn gateway(self, family: Family) -> IpAddr {
        self.in_pod_range(family, 1)
    }

    /// Its address on the overlay device, where there is one.
    #[must_use]
    pub fn overlay(self, family: Family) -> IpAddr {
        // The IPv6 subnet's own address is the routers' anycast address, so not ::0 as in IPv4.
        match family {
            Family::IPv4 => self.in_pod_range(family, 0),
            Family::IPv6 => self.in_pod_range(family, 2),
        }
    }

    /// Every address that the others may see when this node masquerades.
    #[must_use]
    pub fn all_addresses(self, family: Family) -> [IpAddr; 3] {
        [
            self.address(family),
            self.gateway(family),
            self.overlay(family),
        ]
    }

    /// Its pods' range, as in the Node's `spec.podCIDRs`.
    #[must_use]
    pub fn pod_range(self, family: Family) -> String {
        match family {
            Family::IPv4 => format!("10.244.{}.0/24", self.number()),
            Family::IPv6 => format!("fd00:10:244:{}::/64", self.number()),
        }
    }

    pub(crate) fn in_pod_range(self, family: Family, host: u8) -> IpAddr {
        match family {
            Family::IPv4 => Ipv4Addr::new(10, 244, self.number(), host).into(),
            Family::IPv6 => {
                // Written as it reads: pod 11 is ::11.
                let host = u16::from(host / 10 * 16 + host % 10);
                Ipv6Addr::new(0xfd00, 0x10, 0x244, self.number().into(), 0, 0, 0, host).into()
            }
        }
    }
}

/// An address family, spelled as in Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub enum Family {
    /// Internet Protocol version 4.
    IPv4,
    /// Internet Protocol version 6.
    IPv6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::IPv4, Self::IPv6];

    /// The family of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::IPv4
        } else {
            Self::IPv6
        }
    }

    /// The length of the prefix of a node's pods.
    pub(crate) fn range_bits(self) -> u8 {
        match self {
            Self::IPv4 => 24,
            Self::IPv6 => 64,
        }
    }

    /// The length of a host prefix.
    pub(crate) fn host_bits(self) -> u8 {
        match self {
            Self::IPv4 => 32,
            Self::IPv6 => 128,
        }
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::IPv4 => "IPv4",
            Self::IPv6 => "IPv6",
        })
    }
}

/// A pod of the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pod {
    /// Where it runs.
    pub node: Node,
    /// Its number on that node, from 1.
    pub number: u8,
}

impl Pod {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Node::ALL.into_iter().flat_map(Self::on)
    }

    /// Those of one node.
    pub fn on(node: Node) -> impl Iterator<Item = Self> {
        (1..=PODS_PER_NODE).map(move |number| Self { node, number })
    }

    /// Its name and that of its namespace: `pod-a1`.
    #[must_use]
    pub fn name(self) -> String {
        format!("pod-{}{}", self.node.letter(), self.number)
    }

    /// Its address.
    #[must_use]
    pub fn address(self, family: Family) -> IpAddr {
        self.node.in_pod_range(family, 10 + self.number)
    }

    /// The node's end of its cable.
    pub(crate) fn cable(self) -> String {
        format!("pod{}", self.number)
    }
}

/// The name of the external client.
pub const OUTSIDE: &str = "outside";

/// The external client's address.
#[must_use]
pub fn outside_address(family: Family) -> IpAddr {
    underlay(family, 100)
}

fn underlay(family: Family, host: u8) -> IpAddr {
    match family {
        Family::IPv4 => Ipv4Addr::new(192, 168, 50, host).into(),
        Family::IPv6 => {
            let digits = u16::from(host / 100) * 256 + u16::from(host / 10 % 10 * 16 + host % 10);
            Ipv6Addr::new(0xfd00, 0x50, 0, 0, 0, 0, 0, digits).into()
        }
    }
}

/// A client of the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resident {
    /// A process with its own network on a node.
    Pod(Pod),
    /// A process of a node's own network.
    Node(Node),
    /// A machine outside of the cluster.
    Outside,
}

impl Resident {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let nodes = Node::ALL.into_iter().map(Self::Node);
        Pod::all()
            .map(Self::Pod)
            .chain(nodes)
            .chain([Self::Outside])
    }

    /// Finds one by name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|resident| resident.name() == name)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Pod(pod) => pod.name(),
            Self::Node(node) => node.name().to_owned(),
            Self::Outside => OUTSIDE.to_owned(),
        }
    }

    /// The address it sends from without translation. A node may use several.
    #[must_use]
    pub fn address(self, family: Family) -> IpAddr {
        match self {
            Self::Pod(pod) => pod.address(family),
            Self::Node(node) => node.address(family),
            Self::Outside => outside_address(family),
        }
    }

    /// The node whose kernel handles what it sends to a Service.
    #[must_use]
    pub fn served_by(self) -> Node {
        match self {
            Self::Pod(pod) => pod.node,
            Self::Node(node) => node,
            Self::Outside => Node::A,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_the_same_in_both_families() {
        let pod = Pod {
            node: Node::B,
            number: 2,
        };
        assert_eq!(pod.address(Family::IPv4).to_string(), "10.244.2.12");
        assert_eq!(pod.address(Family::IPv6).to_string(), "fd00:10:244:2::12");
        assert_eq!(Node::A.address(Family::IPv4).to_string(), "192.168.50.11");
        assert_eq!(Node::A.address(Family::IPv6).to_string(), "fd00:50::11");
        assert_eq!(outside_address(Family::IPv6).to_string(), "fd00:50::100");
    }

    #[test]
    fn every_resident_is_found_by_its_name() {
        for resident in Resident::all() {
            assert_eq!(Resident::named(&resident.name()), Some(resident));
        }
        assert_eq!(Resident::named("unknown"), None);
    }
}
