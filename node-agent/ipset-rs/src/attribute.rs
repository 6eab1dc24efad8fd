//! Writing and reading netlink attributes without slices that can panic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{
    DecodeError, NLA_F_NESTED, NLA_F_NET_BYTEORDER, NLA_HEADER_SIZE, NlaBuffer, NlasIterator,
};

const IPADDR_IPV4: u16 = 1;
const IPADDR_IPV6: u16 = 2;

/// A value is too long for its netlink attribute (65,531 bytes at most).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("netlink attribute {kind} would be {length} bytes long; 65531 is the limit")]
pub struct EncodeError {
    /// Number of the attribute.
    pub kind: u16,
    /// Length of its value in bytes.
    pub length: usize,
}

/// Appends one attribute and its padding.
pub(crate) fn put(buffer: &mut Vec<u8>, kind: u16, value: &[u8]) -> Result<(), EncodeError> {
    let length = attribute_length(kind, value.len())?;
    buffer.extend_from_slice(&length.to_ne_bytes());
    buffer.extend_from_slice(&kind.to_ne_bytes());
    buffer.extend_from_slice(value);
    while !buffer.len().is_multiple_of(4) {
        buffer.push(0);
    }
    Ok(())
}

/// Appends a text with the closing zero byte that the kernel expects.
pub(crate) fn put_text(buffer: &mut Vec<u8>, kind: u16, text: &str) -> Result<(), EncodeError> {
    let mut value = text.as_bytes().to_vec();
    value.push(0);
    put(buffer, kind, &value)
}

/// Appends a number in network order, marked as such.
pub(crate) fn put_u32(buffer: &mut Vec<u8>, kind: u16, value: u32) -> Result<(), EncodeError> {
    put(buffer, kind | NLA_F_NET_BYTEORDER, &value.to_be_bytes())
}

/// Appends a port in network order, marked as such.
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

/// Appends an attribute whose value is written by `content`, in place: entries are many.
pub(crate) fn put_nested(
    buffer: &mut Vec<u8>,
    kind: u16,
    content: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = buffer.len();
    put(buffer, kind | NLA_F_NESTED, &[])?;
    let inner = buffer.len();
    content(buffer)?;
    let length = attribute_length(kind, buffer.len().saturating_sub(inner))?;
    if let Some(place) = buffer
        .get_mut(start..)
        .and_then(<[u8]>::first_chunk_mut::<2>)
    {
        *place = length.to_ne_bytes();
    }
    Ok(())
}

fn attribute_length(kind: u16, value: usize) -> Result<u16, EncodeError> {
    let error = EncodeError {
        kind,
        length: value,
    };
    let length = value.checked_add(NLA_HEADER_SIZE).ok_or(error.clone())?;
    u16::try_from(length).map_err(|_| error)
}

/// Walks over the attributes in `bytes`.
pub(crate) fn attributes(
    bytes: &[u8],
) -> impl Iterator<Item = Result<NlaBuffer<&[u8]>, DecodeError>> {
    NlasIterator::new(bytes)
}

/// Reads a text up to its first zero byte.
pub(crate) fn text(value: &[u8]) -> String {
    let bytes = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
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
