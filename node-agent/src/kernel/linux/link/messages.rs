//! Between messages of rtnetlink and values: what the kernel says of interfaces, addresses and
//! routes, and routes as it is told them. Pure.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use portolan_reconcile::{HostAddress, HostInterface, HostRoute, InterfaceKind, LocalRoute};
use rtnetlink::RouteMessageBuilder;

/// The table of addresses that are this node's own; the library has no name for it.
const RT_TABLE_LOCAL: u8 = 255;

/// The name of an interface.
pub(super) fn name(link: &LinkMessage) -> Option<&str> {
    link.attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.as_str()),
            _ => None,
        })
}

fn infos(link: &LinkMessage) -> impl Iterator<Item = &LinkInfo> {
    let infos = link
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(infos) => Some(infos.as_slice()),
            _ => None,
        });
    infos.into_iter().flatten()
}

/// Whether it is a dummy device, as we make them.
pub(super) fn is_dummy(link: &LinkMessage) -> bool {
    infos(link).any(|info| *info == LinkInfo::Kind(InfoKind::Dummy))
}

/// An interface that is not ours.
pub(super) fn host_interface(link: &LinkMessage) -> Option<HostInterface> {
    let flags = link.header.flags;
    let kind = infos(link).find_map(|info| match info {
        LinkInfo::Kind(InfoKind::Bridge) => Some(InterfaceKind::Bridge),
        LinkInfo::Kind(InfoKind::Veth) => Some(InterfaceKind::Veth),
        _ => None,
    });
    Some(HostInterface {
        name: name(link)?.into(),
        kind: kind.unwrap_or(InterfaceKind::Other),
        arp: !flags.intersects(LinkFlags::Loopback | LinkFlags::Noarp),
    })
}

/// A local route over our device, as the kernel is told it.
pub(super) fn route_message(index: u32, route: &LocalRoute) -> RouteMessage {
    let length = route.destination.prefix_len();
    let mut message = match (route.destination.network(), route.source) {
        (IpAddr::V4(address), source) => {
            let builder =
                RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(address, length);
            match source {
                Some(IpAddr::V4(source)) => builder.pref_source(source).build(),
                _ => builder.build(),
            }
        }
        (IpAddr::V6(address), source) => {
            let builder =
                RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(address, length);
            match source {
                Some(IpAddr::V6(source)) => builder.pref_source(source).build(),
                _ => builder.build(),
            }
        }
    };
    message.header.table = RT_TABLE_LOCAL;
    message.header.kind = RouteType::Local;
    message.header.scope = RouteScope::Host;
    message.header.protocol = RouteProtocol::Static;
    message.attributes.push(RouteAttribute::Oif(index));
    message
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

/// Whether it is no route but what the kernel learnt for one address, a path MTU or a redirect. Lists
/// of routes hold these, too, and they say nothing of where packets go by themselves.
pub(super) fn is_learnt(route: &RouteMessage) -> bool {
    route.header.flags.contains(RouteFlags::Cloned)
}

/// The interface that a route goes over.
pub(super) fn oif(route: &RouteMessage) -> Option<u32> {
    route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        })
}

fn destination(route: &RouteMessage) -> Option<IpNet> {
    let address = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Destination(address) => ip(address),
            _ => None,
        })?;
    IpNet::new(address, route.header.destination_prefix_length).ok()
}

/// A local route as we write them; what the kernel keeps for addresses, and what others wrote in
/// another way, is not ours.
pub(super) fn local_route(route: &RouteMessage) -> Option<LocalRoute> {
    let ours = route.header.kind == RouteType::Local
        && route.header.table == RT_TABLE_LOCAL
        && route.header.protocol == RouteProtocol::Static;
    if !ours {
        return None;
    }
    let source = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::PrefSource(address) => ip(address),
            _ => None,
        });
    Some(LocalRoute {
        destination: destination(route)?,
        source,
    })
}

/// A route of the node; those without a destination are default routes, wider than any range.
pub(super) fn host_route(route: &RouteMessage) -> Option<HostRoute> {
    let gateway = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Gateway(address) => ip(address),
            _ => None,
        });
    let unspecified = match route.header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let everything = || IpNet::new(unspecified, 0).ok();
    Some(HostRoute {
        destination: destination(route).or_else(everything)?,
        gateway,
    })
}

/// An address, with the name of its interface, if that is known.
pub(super) fn host_address(
    message: &AddressMessage,
    interfaces: &BTreeMap<u32, Arc<str>>,
) -> Option<HostAddress> {
    let find =
        |pick: fn(&AddressAttribute) -> Option<IpAddr>| message.attributes.iter().find_map(pick);
    let local = find(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    // On ordinary links the kernel says the same address twice; IPv6 says it only once.
    let other = find(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    let address = local.or(other)?;
    let interface = interfaces.get(&message.header.index).cloned();
    Some(HostAddress {
        address,
        prefix_length: message.header.prefix_len,
        peer: other.filter(|other| *other != address),
        interface: interface.unwrap_or_else(|| "".into()),
        settled: is_settled(message),
    })
}

/// Whether the kernel takes it for the source of a route: nobody else has it, or it is used before
/// that is known.
fn is_settled(message: &AddressMessage) -> bool {
    let flags = message.header.flags;
    let tentative = flags.contains(AddressHeaderFlags::Tentative)
        && !flags.contains(AddressHeaderFlags::Optimistic);
    !tentative && !flags.contains(AddressHeaderFlags::Dadfailed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learnt_for_one_address_is_no_route() {
        let destination = Ipv4Addr::new(10, 96, 1, 21);
        let mut message = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(destination, 32)
            .build();
        assert!(!is_learnt(&message), "S-30");
        message.header.flags = RouteFlags::from_bits_retain(0x200);
        assert!(is_learnt(&message), "S-24");
    }

    #[test]
    fn an_address_is_settled_once_nobody_else_was_found_to_have_it() {
        let settled = |flags: u8| {
            let mut message = AddressMessage::default();
            message.header.flags = AddressHeaderFlags::from_bits_retain(flags);
            let address = IpAddr::V6(Ipv6Addr::LOCALHOST);
            message.attributes.push(AddressAttribute::Address(address));
            host_address(&message, &BTreeMap::new()).unwrap().settled
        };
        // Permanent; and optimistic, which the kernel uses meanwhile.
        assert!(settled(0x80) && settled(0x40 | 0x04));
        // Tentative; and found elsewhere, whatever else.
        assert!(!settled(0x40) && !settled(0x08) && !settled(0x80 | 0x40 | 0x08 | 0x04));
    }
}
