//! Writes and reads netlink attributes without slices that can panic.
//!
//! The emitters of netlink-packet-core panic if a value does not fit. Values here may come from any source (a
//! scheduler name, a kept attribute), so the length is checked and reported instead.

use netlink_packet_core::{
    DecodeError, DefaultNla, NLA_F_NESTED, NLA_HEADER_SIZE, Nla, NlaBuffer, NlasIterator, Parseable,
};

/// A value is too long for its netlink attribute (maximum 65,531 bytes).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("netlink attribute {kind} would be {length} bytes long; the maximum is 65531")]
pub struct EncodeError {
    /// Number of the attribute.
    pub kind: u16,
    /// Length of its value in bytes.
    pub length: usize,
}

/// Appends one attribute whose length is known at compile time, as nearly all are. This compiles to a few stores,
/// while copying a slice is a call each time.
#[inline]
pub fn put<const N: usize>(buffer: &mut Vec<u8>, kind: u16, value: &[u8; N]) {
    const {
        assert!(N <= 16, "short enough that its length always fits");
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
/// [`EncodeError`] if the value is too long.
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

/// Appends a text with the terminating zero byte that the kernel expects.
///
/// # Errors
/// [`EncodeError`] if the text is too long.
pub fn put_text(buffer: &mut Vec<u8>, kind: u16, text: &str) -> Result<(), EncodeError> {
    let mut value = text.as_bytes().to_vec();
    value.push(0);
    put_slice(buffer, kind, &value)
}

/// Appends an attribute whose value is written in place by `content`. After an error, the buffer contains a part of
/// the attribute, which the caller must remove.
///
/// # Errors
/// The error of `content`, or [`EncodeError`] if the whole value is too long.
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
/// [`EncodeError`] if one is too long.
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

/// Iterates over the attributes in `bytes`.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = Result<NlaBuffer<&[u8]>, DecodeError>> {
    NlasIterator::new(bytes)
}

/// Copies an attribute unchanged.
///
/// # Errors
/// [`DecodeError`] if the attribute is truncated.
pub fn keep(attribute: &NlaBuffer<&[u8]>) -> Result<DefaultNla, DecodeError> {
    DefaultNla::parse(attribute)
}

/// A value up to its first zero byte, which is how the kernel writes a text.
#[must_use]
pub fn until_zero(value: &[u8]) -> &[u8] {
    value.split(|byte| *byte == 0).next().unwrap_or_default()
}
