//! nf_tables values as netlink attributes. Numbers are in network byte order.

use std::sync::Arc;
use std::time::Duration;

use netlink_blocking::attribute::until_zero;
use netlink_packet_core::{DecodeError, NLA_HEADER_SIZE, NlaBuffer};

use crate::bytes::Bytes;

pub use netlink_blocking::attribute::EncodeError;
pub(crate) use netlink_blocking::attribute::{
    attributes, keep, put, put_nested, put_other, put_slice, put_text,
};

/// The name of the table, in the messages of all objects but tables.
pub(crate) const TABLE: u16 = 1;
/// The name of a table, in its own messages.
pub(crate) const NAME: u16 = 1;
/// An item of a list.
pub(crate) const LIST_ELEMENT: u16 = 1;

const DATA_VALUE: u16 = 1;

/// Appends a number of 32 bits.
pub(crate) fn put_u32(buffer: &mut Vec<u8>, kind: u16, value: u32) {
    put(buffer, kind, &value.to_be_bytes());
}

/// Appends a number of 64 bits.
pub(crate) fn put_u64(buffer: &mut Vec<u8>, kind: u16, value: u64) {
    put(buffer, kind, &value.to_be_bytes());
}

/// Appends a duration in milliseconds.
pub(crate) fn put_milliseconds(buffer: &mut Vec<u8>, kind: u16, duration: Duration) {
    put_u64(
        buffer,
        kind,
        u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
    );
}

/// Appends a value, nested as the kernel wants it.
pub(crate) fn put_data(buffer: &mut Vec<u8>, kind: u16, value: &[u8]) -> Result<(), EncodeError> {
    put_nested(buffer, kind, |b| put_slice(b, DATA_VALUE, value))
}

/// The value of an attribute, which lives as long as the message.
pub(crate) fn value(attribute: NlaBuffer<&[u8]>) -> &[u8] {
    let length = usize::from(attribute.length());
    let bytes = attribute.into_inner();
    bytes.get(NLA_HEADER_SIZE..length).unwrap_or_default()
}

/// Reads a nested value; `None` if it is a verdict.
pub(crate) fn data(nested: &[u8]) -> Result<Option<Bytes>, DecodeError> {
    for item in attributes(nested) {
        let item = item?;
        if item.kind() == DATA_VALUE {
            return Ok(Some(Bytes::from(item.value())));
        }
    }
    Ok(None)
}

/// Reads a text up to its first zero byte.
pub(crate) fn text(value: &[u8]) -> Arc<str> {
    String::from_utf8_lossy(until_zero(value)).into()
}

/// The sum of the bits whose flag is set.
pub(crate) fn bits(flags: &[(bool, u32)]) -> u32 {
    flags
        .iter()
        .filter(|(is_set, _)| *is_set)
        .fold(0, |bits, (_, bit)| bits | bit)
}
