//! Converts messages about interfaces and addresses to values. Pure.

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

/// Whether it is a dummy device, the type that the agent creates.
pub(super) fn is_dummy(link: &LinkMessage) -> bool {
    infos(link).any(|info| *info == LinkInfo::Kind(InfoKind::Dummy))
}

/// An interface of the node.
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

/// An address, with the name of its interface if known.
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
    // On ordinary links the kernel includes the same address in both attributes; for IPv6 only in one.
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

/// Whether the kernel accepts it as the source of a route: duplicate address detection has succeeded, or the
/// address is optimistic and usable before that.
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
    fn an_address_is_settled_after_duplicate_address_detection() {
        let settled = |flags: u8| {
            let mut message = AddressMessage::default();
            message.header.flags = AddressHeaderFlags::from_bits_retain(flags);
            let address = IpAddr::V6(Ipv6Addr::LOCALHOST);
            message.attributes.push(AddressAttribute::Address(address));
            host_address(&message, &BTreeMap::new()).unwrap().settled
        };
        // Permanent; and optimistic, which is usable during detection.
        assert!(settled(0x80) && settled(0x40 | 0x04));
        // Tentative; and a detected duplicate, regardless of other flags.
        assert!(!settled(0x40) && !settled(0x08) && !settled(0x80 | 0x40 | 0x08 | 0x04));
    }
}
