//! Families (`NFPROTO_*`), and how a table is named.

use std::fmt;
use std::sync::Arc;

/// The family of a table: which packets its chains process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Family {
    /// IPv4 (`ip`).
    Ipv4,
    /// IPv6 (`ip6`).
    Ipv6,
    /// IPv4 and IPv6 (`inet`).
    Inet,
    /// Frames of bridges (`bridge`).
    Bridge,
    /// Another family, by its number.
    Other(u8),
}

impl Family {
    /// The number of the family in messages.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Ipv4 => 2,
            Self::Bridge => 7,
            Self::Ipv6 => 10,
            Self::Other(number) => number,
        }
    }

    /// The family with a number.
    #[must_use]
    pub fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Inet,
            2 => Self::Ipv4,
            7 => Self::Bridge,
            10 => Self::Ipv6,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "ip",
            Self::Ipv6 => "ip6",
            Self::Inet => "inet",
            Self::Bridge => "bridge",
            Self::Other(number) => return write!(f, "family-{number}"),
        })
    }
}

/// The family and the name of a table, which together identify it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId {
    /// Its family.
    pub family: Family,
    /// Its name.
    pub name: Arc<str>,
}

impl TableId {
    /// The table with this family and name.
    #[must_use]
    pub fn new(family: Family, name: impl Into<Arc<str>>) -> Self {
        Self {
            family,
            name: name.into(),
        }
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.family, self.name)
    }
}
