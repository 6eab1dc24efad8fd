//! Writing and reading netlink attributes without slices that can panic.
//!
//! The emitters of netlink-packet-core panic when a value does not fit; values here may come from
//! anybody (a scheduler name, a kept attribute), so the length is checked and reported instead.

use netlink_packet_core::{
    DecodeError, DefaultNla, NLA_F_NESTED, NLA_HEADER_SIZE, Nla, NlaBuffer, NlasIterator, Parseable,
};

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
pub fn put<const N: usize>(buffer: &mut Vec<u8>, kind: u16, value: &[u8; N]) {
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
///
/// # Errors
/// The value is too long.
pub fn put_slice(buffer: &mut Vec<u8>, kind: u16, value: &[u8]) -> Result<(), EncodeError> {
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
///
/// # Errors
/// The text is too long.
pub fn put_text(buffer: &mut Vec<u8>, kind: u16, text: &str) -> Result<(), EncodeError> {
    let mut value = text.as_bytes().to_vec();
    value.push(0);
    put_slice(buffer, kind, &value)
}

/// Appends an attribute whose value is written by `content`, in place. After an error the buffer holds
/// a part of it, which the caller has to remove.
///
/// # Errors
/// That of `content`, or the whole is too long.
pub fn put_nested(
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

/// Appends attributes that were kept because their kind is unknown.
///
/// # Errors
/// One is too long.
pub fn put_other(buffer: &mut Vec<u8>, other: &[DefaultNla]) -> Result<(), EncodeError> {
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
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = Result<NlaBuffer<&[u8]>, DecodeError>> {
    NlasIterator::new(bytes)
}

/// Keeps an attribute as it is.
///
/// # Errors
/// It is cut off.
pub fn keep(attribute: &NlaBuffer<&[u8]>) -> Result<DefaultNla, DecodeError> {
    DefaultNla::parse(attribute)
}

/// A value up to its first zero byte: a text, as the kernel writes it.
#[must_use]
pub fn until_zero(value: &[u8]) -> &[u8] {
    value.split(|byte| *byte == 0).next().unwrap_or_default()
}
