//! Single fields of the wire, and what can be wrong with them.

use std::net::IpAddr;

use ipnet::IpNet;
use thiserror::Error;

use crate::wire;

/// The bytes are not a valid entry of this kind.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The bytes are not a protobuf message.
    #[error("not a message: {reason}")]
    Message {
        /// The decoder's error message.
        reason: String,
    },
    /// The kind of the entry is not known to this version; a newer controller may send it.
    #[error("this version does not know the kind of the entry")]
    Kind,
    /// A required field is missing.
    #[error("{field} is missing")]
    Missing {
        /// The field's path.
        field: &'static str,
    },
    /// An enum value that is not known to this version; a newer controller may send it.
    #[error("{field}: {number} is not known to this version")]
    Unknown {
        /// The field's path.
        field: &'static str,
        /// The number on the wire.
        number: i32,
    },
    /// A number is outside its range.
    #[error("{field}: {number} is not between {least} and {most}")]
    Range {
        /// The field's path.
        field: &'static str,
        /// The number on the wire.
        number: u32,
        /// The smallest allowed value.
        least: u32,
        /// The largest allowed value.
        most: u32,
    },
    /// An address is neither 4 nor 16 bytes long, or not of the expected family.
    #[error("{field}: {length} bytes are not an address of the expected family")]
    Address {
        /// The field's path.
        field: &'static str,
        /// The number of bytes received.
        length: usize,
    },
    /// The columns of a list have different lengths.
    #[error("{field}: {found} values for {backends} backends")]
    Columns {
        /// The field's path.
        field: &'static str,
        /// The number of values.
        found: usize,
        /// The number of backends.
        backends: usize,
    },
    /// A value is larger than a receiver keeps.
    #[error("{bytes} bytes; an entry has at most {most}")]
    TooLarge {
        /// The size of the value, in bytes.
        bytes: usize,
        /// The maximum size, in bytes.
        most: usize,
    },
    /// A name contains characters that the kernel does not accept, or is too long for it.
    #[error("{field}: {text:?} is not a name of 1 to {longest} letters, digits, '-', '_', '.'")]
    Name {
        /// The field's path.
        field: &'static str,
        /// The text on the wire.
        text: String,
        /// The maximum length, in bytes.
        longest: usize,
    },
}

impl From<prost::DecodeError> for DecodeError {
    fn from(error: prost::DecodeError) -> Self {
        Self::Message {
            reason: error.to_string(),
        }
    }
}

pub(crate) fn in_range(
    number: u32,
    least: u32,
    most: u32,
    field: &'static str,
) -> Result<(), DecodeError> {
    if (least..=most).contains(&number) {
        return Ok(());
    }
    Err(DecodeError::Range {
        field,
        number,
        least,
        most,
    })
}

pub(crate) fn bounded<T: TryFrom<u32>>(
    number: u32,
    most: u32,
    field: &'static str,
) -> Result<T, DecodeError> {
    in_range(number, 0, most, field)?;
    T::try_from(number).map_err(|_| DecodeError::Range {
        field,
        number,
        least: 0,
        most,
    })
}

pub(crate) fn port(number: u32, field: &'static str) -> Result<u16, DecodeError> {
    in_range(number, 1, u16::MAX.into(), field)?;
    bounded(number, u16::MAX.into(), field)
}

pub(crate) fn address(bytes: &[u8], field: &'static str) -> Result<IpAddr, DecodeError> {
    if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
        return Ok(octets.into());
    }
    <[u8; 16]>::try_from(bytes)
        .map(IpAddr::from)
        .map_err(|_| DecodeError::Address {
            field,
            length: bytes.len(),
        })
}

pub(crate) fn ranges(cidrs: &[wire::Cidr], field: &'static str) -> Result<Vec<IpNet>, DecodeError> {
    let one = |cidr: &wire::Cidr| {
        let address = address(&cidr.address, field)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = bounded(cidr.length, most, field)?;
        IpNet::new(address, length).map_err(|_| DecodeError::Range {
            field,
            number: cidr.length,
            least: 0,
            most,
        })
    };
    cidrs.iter().map(one).collect()
}

/// Validates a name that becomes part of a rule or a kernel call. It accepts only names that the kernel accepts.
pub(crate) fn name<'a>(
    text: &'a str,
    longest: usize,
    field: &'static str,
) -> Result<&'a str, DecodeError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    if text.is_empty() || text.len() > longest || !text.chars().all(plain) {
        return Err(DecodeError::Name {
            field,
            text: text.into(),
            longest,
        });
    }
    Ok(text)
}

/// 4 or 16 bytes.
pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

pub(crate) fn cidrs(ranges: &[IpNet]) -> Vec<wire::Cidr> {
    let one = |range: &IpNet| wire::Cidr {
        address: octets(range.addr()),
        length: range.prefix_len().into(),
    };
    ranges.iter().map(one).collect()
}
