//! IPv4 and IPv6 by the kernel's numbers.

use std::fmt;
use std::net::IpAddr;

use netlink_packet_core::DecodeError;

/// Address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// `AF_INET`
    Ipv4,
    /// `AF_INET6`
    Ipv6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Ipv4,
            IpAddr::V6(_) => Self::Ipv6,
        }
    }

    pub(crate) fn to_number(self) -> u16 {
        match self {
            Self::Ipv4 => 2,
            Self::Ipv6 => 10,
        }
    }

    pub(crate) fn from_number(number: u16) -> Result<Self, DecodeError> {
        match number {
            2 => Ok(Self::Ipv4),
            10 => Ok(Self::Ipv6),
            other => Err(DecodeError::from(format!(
                "address family {other} is not IPv4 or IPv6"
            ))),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        })
    }
}
