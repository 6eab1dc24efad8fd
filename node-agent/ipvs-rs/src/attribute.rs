//! Writing and reading netlink attributes without slices that can panic.
//!
//! The emitters of netlink-packet-core panic when a value does not fit; values here may come from
//! anybody (a scheduler name, a kept attribute), so the length is checked and reported instead.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{
    DecodeError, DefaultNla, NLA_F_NESTED, NLA_HEADER_SIZE, Nla, NlaBuffer, NlasIterator, Parseable,
};

use crate::key::Family;

/// A value is too long for its netlink attribute (65,531 bytes at most).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("netlink attribute {kind} would be {length} bytes long; 65531 is the limit")]
pub struct EncodeError {
    /// Number of the attribute.
    pub kind: u16,
    /// Length of its value in bytes.
    pub length: usize,
}

/// Appends one attribute of a length that is known beforehand, as nearly all have: that is a few stores,
/// where copying a slice is a call each time.
#[inline]
pub(crate) fn put<const N: usize>(buffer: &mut Vec<u8>, kind: u16, value: &[u8; N]) {
    const {
        assert!(N <= 16, "so short that its length is no question");
    }
    let length = u16::try_from(NLA_HEADER_SIZE.saturating_add(N)).unwrap_or(u16::MAX);
    buffer.extend_from_slice(&length.to_ne_bytes());
    buffer.extend_from_slice(&kind.to_ne_bytes());
    buffer.extend_from_slice(value);
    match const { N % 4 } {
        0 => {}
        1 => buffer.extend_from_slice(&[0; 3]),
        2 => buffer.extend_from_slice(&[0; 2]),
        _ => buffer.extend_from_slice(&[0; 1]),
    }
}

/// Appends one attribute and its padding.
fn put_slice(buffer: &mut Vec<u8>, kind: u16, value: &[u8]) -> Result<(), EncodeError> {
    let whole = value.len().saturating_add(NLA_HEADER_SIZE);
    let length = u16::try_from(whole).map_err(|_| EncodeError {
        kind,
        length: value.len(),
    })?;
    buffer.extend_from_slice(&length.to_ne_bytes());
    buffer.extend_from_slice(&kind.to_ne_bytes());
    buffer.extend_from_slice(value);
    pad(buffer);
    Ok(())
}

/// Appends a text with the closing zero byte that the kernel expects.
pub(crate) fn put_text(buffer: &mut Vec<u8>, kind: u16, text: &str) -> Result<(), EncodeError> {
    let mut value = text.as_bytes().to_vec();
    value.push(0);
    put_slice(buffer, kind, &value)
}

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

/// Appends an attribute whose value is written by `content`, in place. After an error the buffer holds
/// a part of it: whoever made the message takes that back.
pub(crate) fn put_nested(
    buffer: &mut Vec<u8>,
    kind: u16,
    content: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let kind = kind | NLA_F_NESTED;
    let start = buffer.len();
    buffer.extend_from_slice(&[0; NLA_HEADER_SIZE]);
    content(buffer)?;
    let whole = buffer.len().saturating_sub(start);
    let length = u16::try_from(whole).map_err(|_| EncodeError {
        kind,
        length: whole.saturating_sub(NLA_HEADER_SIZE),
    })?;
    let header = buffer.get_mut(start..).and_then(<[u8]>::first_chunk_mut);
    if let Some([length_low, length_high, kind_low, kind_high]) = header {
        [*length_low, *length_high] = length.to_ne_bytes();
        [*kind_low, *kind_high] = kind.to_ne_bytes();
    }
    Ok(())
}

/// Appends attributes that were kept because this crate does not know them.
pub(crate) fn put_other(buffer: &mut Vec<u8>, other: &[DefaultNla]) -> Result<(), EncodeError> {
    for attribute in other {
        let mut value = vec![0; attribute.value_len()];
        attribute.emit_value(&mut value);
        put_slice(buffer, attribute.kind(), &value)?;
    }
    Ok(())
}

fn pad(buffer: &mut Vec<u8>) {
    buffer.resize(buffer.len().next_multiple_of(4), 0);
}

/// Walks over the attributes in `bytes`.
pub(crate) fn attributes(
    bytes: &[u8],
) -> impl Iterator<Item = Result<NlaBuffer<&[u8]>, DecodeError>> {
    NlasIterator::new(bytes)
}

/// Keeps an attribute as it is.
pub(crate) fn keep(attribute: &NlaBuffer<&[u8]>) -> Result<DefaultNla, DecodeError> {
    DefaultNla::parse(attribute)
}

/// Reads a text up to its first zero byte.
pub(crate) fn text(value: &[u8]) -> Result<String, DecodeError> {
    let bytes = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8(bytes.to_vec()).map_err(DecodeError::from)
}

/// Reads the kernel's address union; it does not say its own family.
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
