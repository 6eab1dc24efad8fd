//! User data of tables, chains, sets and rules: a list of items, each with a type, a length and a value of at most 255
//! bytes. The kernel keeps it without reading it, at most 256 bytes in total.
//!
//! `nft` shows items of the type [`COMMENT`] of tables, chains and rules, and ignores types that it does not know.

use std::sync::Arc;

use netlink_blocking::attribute::until_zero;

use crate::attribute::EncodeError;

/// The comment of a table, a chain or a rule: a text with a terminating zero byte.
pub const COMMENT: u8 = 0;

/// The comment of a set.
pub const SET_COMMENT: u8 = 7;

/// Appends an item.
///
/// # Errors
/// [`EncodeError`] if the value has more than 255 bytes.
pub fn put(data: &mut Vec<u8>, kind: u8, value: &[u8]) -> Result<(), EncodeError> {
    let length = u8::try_from(value.len()).map_err(|_| EncodeError {
        kind: kind.into(),
        length: value.len(),
    })?;
    data.extend_from_slice(&[kind, length]);
    data.extend_from_slice(value);
    Ok(())
}

/// Appends a text with a terminating zero byte.
///
/// # Errors
/// [`EncodeError`] if the text has more than 254 bytes.
pub fn put_text(data: &mut Vec<u8>, kind: u8, text: &str) -> Result<(), EncodeError> {
    let mut value = text.as_bytes().to_vec();
    value.push(0);
    put(data, kind, &value)
}

/// The items, with their types. Ends before an item that is truncated.
pub fn items(data: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = data;
    std::iter::from_fn(move || {
        let (&[kind, length], after) = rest.split_first_chunk()?;
        let (value, after) = after.split_at_checked(length.into())?;
        rest = after;
        Some((kind, value))
    })
}

/// The value of the first item of a type.
#[must_use]
pub fn get(data: &[u8], kind: u8) -> Option<&[u8]> {
    items(data).find(|item| item.0 == kind).map(|item| item.1)
}

/// The comment at the beginning of the data of a rule, and everything after it.
pub(crate) fn take_comment(data: &[u8]) -> (Option<Arc<str>>, Vec<u8>) {
    let comment = match items(data).next() {
        Some((COMMENT, value)) => str::from_utf8(until_zero(value))
            .ok()
            // Only what is written again in the same way.
            .filter(|text| text.len().saturating_add(1) == value.len()),
        _ => None,
    };
    match comment {
        Some(text) => {
            let taken = text.len().saturating_add(3);
            let rest = data.get(taken..).unwrap_or_default();
            (Some(text.into()), rest.to_vec())
        }
        None => (None, data.to_vec()),
    }
}
