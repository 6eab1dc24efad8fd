//! The addresses of draining backends, sent by an agent, and of those among them that left the cluster, sent by a
//! controller.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::DecodeError;
use crate::field;

/// The maximum number of addresses that an agent reports at once. The message stays small compared with the data in
/// flight on a stream. The agent reports the remaining addresses when some of these have finished draining.
pub const MAX_ADDRESSES: usize = 1000;

/// Encodes the first [`MAX_ADDRESSES`] addresses.
pub fn write<'a>(addresses: impl IntoIterator<Item = &'a IpAddr>) -> Vec<Vec<u8>> {
    let bytes = |address: &IpAddr| match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    addresses
        .into_iter()
        .take(MAX_ADDRESSES)
        .map(bytes)
        .collect()
}

/// Decodes the addresses in `field`.
///
/// # Errors
/// [`DecodeError`] if there are more than [`MAX_ADDRESSES`] addresses, or if one is invalid.
pub fn read(addresses: &[Vec<u8>], field: &'static str) -> Result<BTreeSet<IpAddr>, DecodeError> {
    let most = u32::try_from(MAX_ADDRESSES).unwrap_or(u32::MAX);
    let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    if count > most {
        return Err(DecodeError::Range {
            field,
            number: count,
            least: 0,
            most,
        });
    }
    let one = |bytes: &Vec<u8>| field::address(bytes, field);
    addresses.iter().map(one).collect()
}
