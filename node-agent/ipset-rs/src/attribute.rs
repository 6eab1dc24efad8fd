//! ipset values as netlink attributes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_blocking::attribute::until_zero;
use netlink_packet_core::{DecodeError, NLA_F_NET_BYTEORDER};

pub use netlink_blocking::attribute::EncodeError;
pub(crate) use netlink_blocking::attribute::{
    attributes, put_nested, put_other, put_slice as put, put_text,
};

const IPADDR_IPV4: u16 = 1;
const IPADDR_IPV6: u16 = 2;

/// Appends a number in network byte order, with the flag for it.
pub(crate) fn put_u32(buffer: &mut Vec<u8>, kind: u16, value: u32) -> Result<(), EncodeError> {
    put(buffer, kind | NLA_F_NET_BYTEORDER, &value.to_be_bytes())
}

/// Appends a port in network byte order, with the flag for it.
pub(crate) fn put_u16(buffer: &mut Vec<u8>, kind: u16, value: u16) -> Result<(), EncodeError> {
    put(buffer, kind | NLA_F_NET_BYTEORDER, &value.to_be_bytes())
}

/// Appends an address nested by family.
pub(crate) fn put_address(
    buffer: &mut Vec<u8>,
    kind: u16,
    address: IpAddr,
) -> Result<(), EncodeError> {
    put_nested(buffer, kind, |b| match address {
        IpAddr::V4(v4) => put(b, IPADDR_IPV4 | NLA_F_NET_BYTEORDER, &v4.octets()),
        IpAddr::V6(v6) => put(b, IPADDR_IPV6 | NLA_F_NET_BYTEORDER, &v6.octets()),
    })
}

/// Reads a text up to its first zero byte.
pub(crate) fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(until_zero(value)).into_owned()
}

/// Reads an address nested by family.
pub(crate) fn address(value: &[u8]) -> Result<IpAddr, DecodeError> {
    for item in attributes(value) {
        let item = item?;
        let octets = item.value();
        let wrong = || DecodeError::invalid_ip_address(octets.len());
        match item.kind() {
            IPADDR_IPV4 => {
                return Ok(Ipv4Addr::from(*octets.first_chunk::<4>().ok_or_else(wrong)?).into());
            }
            IPADDR_IPV6 => {
                return Ok(Ipv6Addr::from(*octets.first_chunk::<16>().ok_or_else(wrong)?).into());
            }
            _ => {}
        }
    }
    Err(DecodeError::from("address attribute without an address"))
}
