//! The node's own network, without Portolan's objects: its interfaces, addresses and routes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::Family;

use crate::ports::Ports;

/// The node's network without Portolan's objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostNetwork {
    /// Interfaces other than Portolan's device.
    pub interfaces: Vec<HostInterface>,
    /// Addresses on interfaces other than Portolan's device.
    pub addresses: Vec<HostAddress>,
    /// Routes over interfaces other than Portolan's device.
    pub routes: Vec<HostRoute>,
    /// The properties of the machine.
    pub machine: Machine,
}

/// Properties of the machine on which kernel settings depend, besides the network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// The number of online processors; 0 if unknown.
    pub processors: u32,
    /// The major and minor version of the kernel.
    pub kernel: (u32, u32),
    /// Whether the limit of tracked connections can be set here. It applies to the whole machine, and the kernel
    /// allows only the initial network namespace to set it.
    pub limits_conntrack: bool,
    /// The reason if the machine has no IPv6.
    pub ipv6_off: Option<Ipv6Off>,
    /// The ports from which the node connects (`ip_local_port_range`); empty if unknown.
    pub local_ports: Ports,
    /// The part of them that others than the agent reserve (`ip_local_reserved_ports`).
    pub reserved_by_others: Ports,
}

/// Why a node has no IPv6 (S-182).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ipv6Off {
    /// The kernel was booted or built without IPv6.
    NotInKernel,
    /// A sysctl disables IPv6, and no interface other than `lo` has an IPv6 address regardless.
    Disabled,
}

impl fmt::Display for Ipv6Off {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotInKernel => {
                "this kernel runs without IPv6: check for ipv6.disable=1 on its command line"
            }
            Self::Disabled => "net.ipv6.conf.all.disable_ipv6 is 1",
        })
    }
}

/// An interface of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostInterface {
    /// Its name; it may contain dots (`eth0.100`), but no slash.
    pub name: Arc<str>,
    /// The kind of the interface.
    pub kind: InterfaceKind,
}

/// The kind of an interface, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterfaceKind {
    /// A bridge: switched packets do not pass the node's rules by default.
    Bridge,
    /// One end of a veth pair between network namespaces.
    Veth,
    /// Anything else.
    Other,
}

/// An address of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAddress {
    /// The address.
    pub address: IpAddr,
    /// The prefix length of the link's network, at most 32 or 128.
    pub prefix_length: u8,
    /// The peer address on point-to-point links.
    pub peer: Option<IpAddr>,
    /// The interface of the address; empty if it disappeared during the observation.
    pub interface: Arc<str>,
    /// Whether the address can be used. A new IPv6 address is unusable until duplicate address detection has
    /// finished, and remains so if detection found a duplicate.
    pub settled: bool,
}

impl HostAddress {
    /// An address with its link's network.
    pub fn on(interface: &str, address: IpNet) -> Self {
        Self {
            address: address.addr(),
            prefix_length: address.prefix_len(),
            peer: None,
            interface: interface.into(),
            settled: true,
        }
    }

    /// Whether its prefix contains only the address itself: /32 or /128.
    pub fn is_single(&self) -> bool {
        let bits = if self.address.is_ipv4() { 32 } else { 128 };
        self.prefix_length >= bits
    }
}

/// A route of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostRoute {
    /// The destination.
    pub destination: IpNet,
    /// The next hop; `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
}

impl HostNetwork {
    /// Whether the address is on an interface of the node (S-25).
    pub fn owns(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|host| host.address == address)
    }

    /// Whether the machine supports this family (S-182).
    pub(crate) fn supports(&self, family: Family) -> bool {
        family == Family::Ipv4 || self.machine.ipv6_off.is_none()
    }

    /// Whether the node has an address of this family, including those of `lo`.
    pub(crate) fn has_address_in(&self, family: Family) -> bool {
        let mut addresses = self.addresses.iter();
        addresses.any(|host| Family::of(host.address) == family)
    }

    /// Whether other hosts can reach the node over this family: it has an address that is neither loopback nor
    /// link-local.
    pub(crate) fn is_reachable_over(&self, family: Family) -> bool {
        let mut addresses = self.addresses.iter().map(|host| host.address);
        addresses.any(|address| {
            Family::of(address) == family && !address.is_loopback() && !is_of_one_link(address)
        })
    }

    /// Whether connections to the unused addresses of this range can be rejected without affecting the node: no
    /// address, peer or next hop of the node is in the range, and no other route has the range or a part of it as its
    /// destination. Wider routes, including the default route, do not matter.
    pub fn leaves_free(&self, range: &IpNet) -> bool {
        let outside = |address: IpAddr| !range.contains(&address);
        let addresses = self
            .addresses
            .iter()
            .flat_map(|host| [Some(host.address), host.peer]);
        let gateways = self.routes.iter().map(|route| route.gateway);
        addresses.chain(gateways).flatten().all(outside)
            && self
                .routes
                .iter()
                .all(|route| !range.contains(&route.destination))
    }

    /// The addresses to which at most the default route leads: a packet that is forwarded to one goes back to where it
    /// came from. None of them is an address, peer or next hop of the node.
    pub fn without_route<'a>(
        &self,
        addresses: impl IntoIterator<Item = &'a IpAddr>,
    ) -> BTreeSet<IpAddr> {
        let mut routes = BTreeMap::<u8, BTreeSet<IpNet>>::new();
        for route in &self.routes {
            let length = route.destination.prefix_len();
            let of_length = routes.entry(length).or_default();
            of_length.insert(route.destination.trunc());
        }
        routes.remove(&0);
        let own = self.addresses.iter();
        let own = own.flat_map(|host| [Some(host.address), host.peer]);
        let gateways = self.routes.iter().map(|route| route.gateway);
        let own: BTreeSet<_> = own.chain(gateways).flatten().collect();
        let is_led_to = |address: IpAddr| {
            routes.iter().any(|(length, destinations)| {
                let range = IpNet::new(address, *length);
                range.is_ok_and(|range| destinations.contains(&range.trunc()))
            })
        };
        let addresses = addresses.into_iter().copied();
        addresses
            .filter(|address| !own.contains(address) && !is_led_to(*address))
            .collect()
    }

    /// Whether the node's own connections can come from the address.
    pub(crate) fn can_send_from(&self, address: IpAddr) -> bool {
        let mut addresses = self.addresses.iter();
        addresses.any(|host| host.address == address && host.settled)
    }

    /// Whether this network leads to the same desired state as another one, apart from kernel settings: it has the
    /// same addresses, the same of these ranges are free, and routes lead to the same of these balancers' addresses. Pods
    /// that come and go change interfaces, routes and link-local addresses, but not the desired state.
    pub fn is_like(&self, other: &Self, ranges: &[IpNet], balancers: &BTreeSet<IpAddr>) -> bool {
        let own = |host: &Self| -> BTreeSet<(IpAddr, bool)> {
            let all = host.addresses.iter();
            all.filter(|host| !is_of_one_link(host.address))
                .map(|host| (host.address, host.settled))
                .collect()
        };
        own(self) == own(other)
            && self.machine == other.machine
            && ranges
                .iter()
                .all(|range| self.leaves_free(range) == other.leaves_free(range))
            && self.without_route(balancers) == other.without_route(balancers)
    }

    /// The addresses on one interface.
    pub(crate) fn addresses_on(&self, interface: &str) -> impl Iterator<Item = &HostAddress> {
        self.addresses
            .iter()
            .filter(move |address| &*address.interface == interface)
    }
}

/// Whether an address is link-local. Neither node ports nor Services use such addresses (S-29, S-32).
fn is_of_one_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(addresses: &[&str], routes: &[&str]) -> HostNetwork {
        let on = |text: &&str| HostAddress::on("eth0", text.parse().unwrap());
        let route = |text: &&str| HostRoute {
            destination: text.parse().unwrap(),
            gateway: None,
        };
        HostNetwork {
            addresses: addresses.iter().map(on).collect(),
            routes: routes.iter().map(route).collect(),
            ..HostNetwork::default()
        }
    }

    #[test]
    fn pods_that_come_and_go_change_nothing() {
        let ranges = ["10.96.0.0/12".parse().unwrap()];
        let before = network(&["192.168.1.1/24"], &["192.168.1.0/24"]);
        let pod = network(
            &["192.168.1.1/24", "fe80::1/64"],
            &["192.168.1.0/24", "10.244.1.7/32"],
        );
        assert!(pod.is_like(&before, &ranges, &none()));
        let address = network(&["192.168.1.1/24", "192.168.1.2/24"], &["192.168.1.0/24"]);
        assert!(!address.is_like(&before, &ranges, &none()), "S-37");
        let route = network(&["192.168.1.1/24"], &["192.168.1.0/24", "10.97.0.0/16"]);
        assert!(!route.is_like(&before, &ranges, &none()), "S-30");
        assert!(route.is_like(&before, &[], &none()));
    }

    fn none() -> BTreeSet<IpAddr> {
        BTreeSet::new()
    }

    #[test]
    fn a_route_to_a_balancer_is_a_change() {
        let balancers = ["203.0.113.7", "203.0.113.8", "2001:db8::7"];
        let balancers: BTreeSet<IpAddr> = balancers.map(|text| text.parse().unwrap()).into();
        let before = network(
            &["192.168.1.1/24"],
            &["192.168.1.0/24", "0.0.0.0/0", "::/0"],
        );
        assert_eq!(before.without_route(&balancers), balancers, "S-247");
        for (route, led_to) in [
            ("203.0.113.8/32", 1),
            ("203.0.113.0/24", 2),
            ("2001:db8::/64", 1),
            ("203.0.114.0/24", 0),
        ] {
            let mut after = before.clone();
            let destination = route.parse().unwrap();
            let gateway = None;
            after.routes.push(HostRoute {
                destination,
                gateway,
            });
            let left = balancers.len() - led_to;
            assert_eq!(after.without_route(&balancers).len(), left, "{route}");
            assert_eq!(
                after.is_like(&before, &[], &balancers),
                led_to == 0,
                "{route}"
            );
        }
        let own = network(&["203.0.113.7/32"], &[]);
        assert_eq!(own.without_route(&balancers).len(), 2, "S-25");
    }

    #[test]
    fn disabling_ipv6_is_a_change() {
        let before = network(&["192.168.1.1/24"], &[]);
        let mut off = before.clone();
        off.machine.ipv6_off = Some(Ipv6Off::Disabled);
        assert!(!off.is_like(&before, &[], &none()), "S-182");
        assert!(off.supports(Family::Ipv4) && !off.supports(Family::Ipv6));
    }

    #[test]
    fn an_address_that_becomes_usable_is_a_change() {
        let before = network(&["fd00:50::1/64"], &[]);
        let mut tentative = before.clone();
        tentative.addresses[0].settled = false;
        assert!(!tentative.is_like(&before, &[], &none()), "S-37");
        let of_the_link = network(&["fe80::1/64"], &[]);
        let mut tentative = of_the_link.clone();
        tentative.addresses[0].settled = false;
        assert!(tentative.is_like(&of_the_link, &[], &none()));
    }
}
