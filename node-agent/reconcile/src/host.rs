//! The node's own network, beside what is ours: its interfaces, addresses and routes.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::Family;

use crate::{Observed, PolicyRule, Route};

/// Everything that links, addresses and routes tell: what is ours among them, and the rest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// Whether our device is there and up.
    pub device_up: bool,
    /// Our routes.
    pub routes: BTreeSet<Route>,
    /// Our policy routing rules.
    pub policy: BTreeSet<PolicyRule>,
    /// The rest.
    pub host: HostNetwork,
}

/// What the node's network looks like beside what is ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostNetwork {
    /// Interfaces other than our device.
    pub interfaces: Vec<HostInterface>,
    /// Addresses on interfaces other than our device.
    pub addresses: Vec<HostAddress>,
    /// Routes over interfaces other than our device.
    pub routes: Vec<HostRoute>,
    /// The machine that all this is on.
    pub machine: Machine,
}

/// What kernel settings depend on besides the network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Machine {
    /// How many processors are on; 0 if that is not known.
    pub processors: u32,
    /// Major and minor number of the kernel's version.
    pub kernel: (u32, u32),
    /// Whether the limit of tracked connections can be set here. It is one for the whole machine, and
    /// the kernel lets only the first network namespace set it.
    pub limits_conntrack: bool,
    /// Why it has no IPv6, if it has none.
    pub ipv6_off: Option<Ipv6Off>,
}

/// Why a node has no IPv6 (S-182).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ipv6Off {
    /// The kernel was started or built without it.
    NotInKernel,
    /// A setting switches it off, and no interface but `lo` has an address all the same.
    Disabled,
}

impl fmt::Display for Ipv6Off {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotInKernel => "this kernel runs without it: ipv6.disable=1?",
            Self::Disabled => "net.ipv6.conf.all.disable_ipv6 is 1",
        })
    }
}

/// An interface of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostInterface {
    /// Its name; it may hold dots (`eth0.100`), never a slash.
    pub name: Arc<str>,
    /// What makes it.
    pub kind: InterfaceKind,
}

/// What makes an interface, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterfaceKind {
    /// A bridge: what is switched in it does not pass the node's rules by itself.
    Bridge,
    /// One end of a cable between network namespaces.
    Veth,
    /// Anything else.
    Other,
}

/// An address of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAddress {
    /// The address itself.
    pub address: IpAddr,
    /// How many of its bits name the network on the link, at most 32 or 128.
    pub prefix_length: u8,
    /// The other end, on point-to-point links.
    pub peer: Option<IpAddr>,
    /// The interface that holds it; empty if that went away while we looked.
    pub interface: Arc<str>,
    /// Whether it may be used. Over IPv6 one that is new is not before nobody else was found to have it, and never
    /// if somebody was.
    pub settled: bool,
}

impl HostAddress {
    /// An address with the network of its link.
    pub fn on(interface: &str, address: IpNet) -> Self {
        Self {
            address: address.addr(),
            prefix_length: address.prefix_len(),
            peer: None,
            interface: interface.into(),
            settled: true,
        }
    }

    /// Whether it is alone on its link: a /32 or /128.
    pub fn is_single(&self) -> bool {
        let bits = if self.address.is_ipv4() { 32 } else { 128 };
        self.prefix_length >= bits
    }
}

/// A route of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostRoute {
    /// Where to.
    pub destination: IpNet,
    /// The next hop, if it is not on the link itself.
    pub gateway: Option<IpAddr>,
}

impl HostNetwork {
    /// Whether the address sits on an interface of the node (S-25).
    pub fn owns(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|host| host.address == address)
    }

    /// Whether anything of this family can work here at all (S-182).
    pub(crate) fn knows(&self, family: Family) -> bool {
        family == Family::Ipv4 || self.machine.ipv6_off.is_none()
    }

    /// Whether the node has an address of this family, were it that of `lo`.
    pub(crate) fn speaks(&self, family: Family) -> bool {
        let mut addresses = self.addresses.iter();
        addresses.any(|host| Family::of(host.address) == family)
    }

    /// Whether others may reach the node over this family: it has an address that is neither for itself
    /// nor for one link alone.
    pub(crate) fn is_reached_over(&self, family: Family) -> bool {
        let mut addresses = self.addresses.iter().map(|host| host.address);
        addresses.any(|address| {
            Family::of(address) == family && !address.is_loopback() && !is_of_one_link(address)
        })
    }

    /// Whether refusing what is unused in this whole range takes nothing away from the node: no address,
    /// peer or next hop of it lies inside, and no other route goes to the same range or a part of
    /// it. Wider routes, the default route among them, do not count.
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

    /// Whether the node's own connections can come from the address.
    pub(crate) fn can_send_from(&self, address: IpAddr) -> bool {
        let mut addresses = self.addresses.iter();
        addresses.any(|host| host.address == address && host.settled)
    }

    /// Whether this network asks for the same of us as another one, but for kernel settings: the same
    /// addresses, and the same of these ranges free. Pods that come and go bring interfaces, routes
    /// and link-local addresses, and change nothing of that.
    pub fn is_like(&self, other: &Self, ranges: &[IpNet]) -> bool {
        let own = |host: &Self| -> BTreeSet<(IpAddr, bool)> {
            let all = host.addresses.iter();
            all.filter(|host| !is_of_one_link(host.address))
                .map(|host| (host.address, host.settled))
                .collect()
        };
        own(self) == own(other)
            && self.machine.ipv6_off == other.machine.ipv6_off
            && ranges
                .iter()
                .all(|range| self.leaves_free(range) == other.leaves_free(range))
    }

    /// The addresses on one interface.
    pub(crate) fn addresses_on(&self, interface: &str) -> impl Iterator<Item = &HostAddress> {
        self.addresses
            .iter()
            .filter(move |address| &*address.interface == interface)
    }
}

/// Neither node ports nor Services are on such addresses (S-29, S-32).
fn is_of_one_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

impl Observed {
    /// What was seen of links, addresses and routes.
    pub fn network(&self) -> Network {
        Network {
            device_up: self.device_up,
            routes: self.routes.clone(),
            policy: self.policy.clone(),
            host: self.host.clone(),
        }
    }

    /// Puts what was seen of links, addresses and routes in the place of what was known.
    pub fn set_network(&mut self, network: Network) {
        self.device_up = network.device_up;
        self.routes = network.routes;
        self.policy = network.policy;
        self.host = network.host;
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
    fn pods_that_come_and_go_ask_for_nothing() {
        let ranges = ["10.96.0.0/12".parse().unwrap()];
        let before = network(&["192.168.1.1/24"], &["192.168.1.0/24"]);
        let pod = network(
            &["192.168.1.1/24", "fe80::1/64"],
            &["192.168.1.0/24", "10.244.1.7/32"],
        );
        assert!(pod.is_like(&before, &ranges));
        let address = network(&["192.168.1.1/24", "192.168.1.2/24"], &["192.168.1.0/24"]);
        assert!(!address.is_like(&before, &ranges), "S-37");
        let route = network(&["192.168.1.1/24"], &["192.168.1.0/24", "10.97.0.0/16"]);
        assert!(!route.is_like(&before, &ranges), "S-30");
        assert!(route.is_like(&before, &[]));
    }

    #[test]
    fn ipv6_that_is_switched_off_asks_for_something() {
        let before = network(&["192.168.1.1/24"], &[]);
        let mut off = before.clone();
        off.machine.ipv6_off = Some(Ipv6Off::Disabled);
        assert!(!off.is_like(&before, &[]), "S-182");
        assert!(off.knows(Family::Ipv4) && !off.knows(Family::Ipv6));
    }

    #[test]
    fn an_address_that_settles_asks_for_something() {
        let before = network(&["fd00:50::1/64"], &[]);
        let mut tentative = before.clone();
        tentative.addresses[0].settled = false;
        assert!(!tentative.is_like(&before, &[]), "S-37");
        let of_the_link = network(&["fe80::1/64"], &[]);
        let mut tentative = of_the_link.clone();
        tentative.addresses[0].settled = false;
        assert!(tentative.is_like(&of_the_link, &[]));
    }
}
