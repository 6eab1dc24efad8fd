//! What the kernel says of interfaces and addresses, as values. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use portolan_reconcile::{HostAddress, HostInterface, InterfaceKind};

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
    let kind = infos(link).find_map(|info| match info {
        LinkInfo::Kind(InfoKind::Bridge) => Some(InterfaceKind::Bridge),
        LinkInfo::Kind(InfoKind::Veth) => Some(InterfaceKind::Veth),
        _ => None,
    });
    Some(HostInterface {
        name: name(link)?.into(),
        kind: kind.unwrap_or(InterfaceKind::Other),
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
    use std::net::Ipv6Addr;

    use super::*;

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
