//! Names and types of sets, families and protocols.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use netlink_packet_core::DecodeError;

/// Address family of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// `inet`
    Ipv4,
    /// `inet6`
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

    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Ipv4 => 2,
            Self::Ipv6 => 10,
        }
    }

    /// `None` for types without a family, such as bitmap:port.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        match number {
            2 => Some(Self::Ipv4),
            10 => Some(Self::Ipv6),
            _ => None,
        }
    }

    /// The number of bits of an address.
    pub(crate) fn bits(self) -> u8 {
        match self {
            Self::Ipv4 => 32,
            Self::Ipv6 => 128,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "inet",
            Self::Ipv6 => "inet6",
        })
    }
}

/// Transport protocol of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP
    Tcp,
    /// UDP
    Udp,
    /// SCTP
    Sctp,
}

impl Protocol {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        match number {
            6 => Some(Self::Tcp),
            17 => Some(Self::Udp),
            132 => Some(Self::Sctp),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Type of a set, which determines the parts of its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SetType {
    /// Address, protocol and port.
    HashIpPort,
    /// Address ranges by prefix.
    HashNet,
    /// Address, protocol, port and a second address.
    HashIpPortIp,
    /// Address, protocol, port and a range of second addresses.
    HashIpPortNet,
    /// Ports of any protocol, always all of them from 0 to 65535; without a family.
    BitmapPort,
}

impl SetType {
    /// All types that this crate supports.
    pub const ALL: [Self; 5] = [
        Self::HashIpPort,
        Self::HashNet,
        Self::HashIpPortIp,
        Self::HashIpPortNet,
        Self::BitmapPort,
    ];

    /// The kernel's name of the type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::HashIpPort => "hash:ip,port",
            Self::HashNet => "hash:net",
            Self::HashIpPortIp => "hash:ip,port,ip",
            Self::HashIpPortNet => "hash:ip,port,net",
            Self::BitmapPort => "bitmap:port",
        }
    }

    /// The revision that introduced the newest feature used here: SCTP for types with ports.
    pub(crate) fn needed_revision(self) -> u8 {
        match self {
            Self::HashIpPort | Self::HashIpPortIp | Self::HashIpPortNet => 1,
            Self::HashNet | Self::BitmapPort => 0,
        }
    }

    /// Whether sets of the type have a family.
    #[must_use]
    pub fn has_family(self) -> bool {
        self != Self::BitmapPort
    }

    /// The type with this name, if this crate supports it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for SetType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is not a valid set name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a valid set name: {reason}")]
pub struct SetNameError {
    /// The text.
    pub name: String,
    /// The reason.
    pub reason: &'static str,
}

/// Name of a set: 1 to 31 bytes without a zero byte.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetName(String);

impl SetName {
    /// Maximum length of a name in bytes (`IPSET_MAXNAMELEN` without the terminating zero byte).
    pub const MAX_BYTES: usize = 31;

    /// Validates a name.
    ///
    /// # Errors
    /// [`SetNameError`] if the name is empty (the kernel would interpret that as *all sets*), too long, or contains a
    /// zero byte.
    pub fn new(name: &str) -> Result<Self, SetNameError> {
        let refuse = |reason| SetNameError {
            name: name.to_owned(),
            reason,
        };
        if name.is_empty() {
            return Err(refuse("it is empty"));
        }
        if name.len() > Self::MAX_BYTES {
            return Err(refuse("it is longer than 31 bytes"));
        }
        if name.contains('\0') {
            return Err(refuse("it contains a zero byte"));
        }
        Ok(Self(name.to_owned()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn parse(value: &[u8]) -> Result<Self, DecodeError> {
        let bytes = value.split(|byte| *byte == 0).next().unwrap_or_default();
        // Other programs may name sets in any encoding; a lossy name is still a name to list.
        Self::new(&String::from_utf8_lossy(bytes)).map_err(|e| DecodeError::from(e.to_string()))
    }
}

impl FromStr for SetName {
    type Err = SetNameError;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::new(name)
    }
}

impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for SetName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}
