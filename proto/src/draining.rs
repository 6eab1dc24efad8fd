//! Addresses of backends that drain, from an agent, and of those that are gone, from a controller.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::DecodeError;
use crate::decode;

/// How many addresses an agent tells at once. The others follow when some of these are done; so the
/// message stays small beside what a stream holds in flight.
pub const MOST: usize = 1000;

/// The first [`MOST`] addresses as they travel.
pub fn write<'a>(addresses: impl IntoIterator<Item = &'a IpAddr>) -> Vec<Vec<u8>> {
    let bytes = |address: &IpAddr| match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    addresses.into_iter().take(MOST).map(bytes).collect()
}

/// The addresses that travelled in `field`.
///
/// # Errors
/// [`DecodeError`] when there are more than [`MOST`], or one is no address.
pub fn read(addresses: &[Vec<u8>], field: &'static str) -> Result<BTreeSet<IpAddr>, DecodeError> {
    let most = u32::try_from(MOST).unwrap_or(u32::MAX);
    let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    if count > most {
        return Err(DecodeError::Range {
            field,
            number: count,
            least: 0,
            most,
        });
    }
    let one = |bytes: &Vec<u8>| decode::address(bytes, field);
    addresses.iter().map(one).collect()
}
