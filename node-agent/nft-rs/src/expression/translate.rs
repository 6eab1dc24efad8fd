//! Translation of addresses.

use super::Register;
use crate::family::Family;

/// Which address is translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NatKind {
    /// The source address.
    Source,
    /// The destination address.
    Destination,
}

/// How a port is chosen (`NF_NAT_RANGE_*`). Flags for the presence of addresses and ports are not among them: they
/// follow from the registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NatFlags(pub u32);

impl NatFlags {
    /// None.
    pub const NONE: Self = Self(0);
    /// By a hash of the addresses, where the port is not free.
    pub const RANDOM: Self = Self(4);
    /// A client always gets the same address of a range.
    pub const PERSISTENT: Self = Self(8);
    /// At random.
    pub const FULLY_RANDOM: Self = Self(0x10);
    /// One address for each address.
    pub const NETMAP: Self = Self(0x40);

    /// Addresses are given.
    pub(super) const ADDRESSES: u32 = 1;
    /// Ports are given.
    pub(super) const PORTS: u32 = 2;

    /// These flags and others.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A translation of the source or destination address, which ends the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nat {
    /// Which address is translated.
    pub kind: NatKind,
    /// The family of the new address.
    pub family: Family,
    /// The new address, or the first one of a range.
    pub address: Option<Register>,
    /// The last address of a range; `None` is the first one.
    pub last_address: Option<Register>,
    /// The new port, or the first one of a range; `None` keeps the port.
    pub port: Option<Register>,
    /// The last port of a range; `None` is the first one.
    pub last_port: Option<Register>,
    /// How a port is chosen.
    pub flags: NatFlags,
}

/// A translation of the source address to that of the interface by which the packet leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Masquerade {
    /// How a port is chosen.
    pub flags: NatFlags,
    /// The first source port of a range.
    pub port: Option<Register>,
    /// The last source port of a range; `None` is the first one.
    pub last_port: Option<Register>,
}
