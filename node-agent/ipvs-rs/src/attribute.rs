//! IPVS values as netlink attributes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_blocking::attribute::until_zero;
use netlink_packet_core::DecodeError;

pub use netlink_blocking::attribute::EncodeError;
pub(crate) use netlink_blocking::attribute::{
    attributes, keep, put, put_nested, put_other, put_text,
};

use crate::address_family::Family;

/// Appends an address as the kernel's 16-byte union: IPv4 in the first four bytes.
#[inline]
pub(crate) fn put_address(buffer: &mut Vec<u8>, kind: u16, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            put(
                buffer,
                kind,
                &[a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            );
        }
        IpAddr::V6(v6) => put(buffer, kind, &v6.octets()),
    }
}

/// Reads a text up to its first zero byte.
pub(crate) fn text(value: &[u8]) -> Result<String, DecodeError> {
    String::from_utf8(until_zero(value).to_vec()).map_err(DecodeError::from)
}

/// Reads the kernel's address union, which does not contain the family.
pub(crate) fn address(value: &[u8], family: Family) -> Result<IpAddr, DecodeError> {
    match family {
        Family::Ipv4 => value
            .first_chunk::<4>()
            .map(|octets| IpAddr::V4(Ipv4Addr::from(*octets)))
            .ok_or_else(|| DecodeError::invalid_ip_address(value.len())),
        Family::Ipv6 => value
            .first_chunk::<16>()
            .map(|octets| IpAddr::V6(Ipv6Addr::from(*octets)))
            .ok_or_else(|| DecodeError::invalid_ip_address(value.len())),
    }
}
