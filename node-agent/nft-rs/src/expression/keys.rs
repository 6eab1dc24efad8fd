//! What expressions load, and how they compare: numbers of the kernel with names.

use std::fmt;

/// Declares an enumeration of numbers of the kernel, with a variant for those that have no name here.
macro_rules! numbers {
    (
        $(#[$about:meta])*
        $name:ident { $($(#[$doc:meta])* $variant:ident = $number:literal $text:literal,)+ }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant,)+
            /// Another one, by its number.
            Other(u32),
        }

        impl $name {
            /// Its number in messages.
            #[must_use]
            pub fn number(self) -> u32 {
                match self {
                    $(Self::$variant => $number,)+
                    Self::Other(number) => number,
                }
            }

            /// The one with a number.
            #[must_use]
            pub fn from_number(number: u32) -> Self {
                match number {
                    $($number => Self::$variant,)+
                    other => Self::Other(other),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $text,)+
                    Self::Other(number) => return write!(f, "{number}"),
                })
            }
        }
    };
}

numbers! {
    /// The header from which an offset counts.
    HeaderBase {
        /// Of the link layer.
        Link = 0 "link",
        /// IPv4 or IPv6.
        Network = 1 "network",
        /// TCP, UDP or SCTP.
        Transport = 2 "transport",
        /// After the transport header.
        Inner = 3 "inner",
    }
}

numbers! {
    /// A property of a packet.
    MetaKey {
        /// Its length.
        Length = 0 "length",
        /// Its ethertype.
        EtherType = 1 "protocol",
        /// Its mark, in host byte order.
        Mark = 3 "mark",
        /// The index of the interface by which it came.
        InputInterface = 4 "iif",
        /// The index of the interface by which it leaves.
        OutputInterface = 5 "oif",
        /// The name of the interface by which it came, 16 bytes.
        InputInterfaceName = 6 "iifname",
        /// The name of the interface by which it leaves, 16 bytes.
        OutputInterfaceName = 7 "oifname",
        /// Its family, one byte ([`crate::Family::number`]).
        Family = 15 "nfproto",
        /// Its transport protocol, one byte.
        Protocol = 16 "l4proto",
        /// Whether it is for this host, for many or for others.
        PacketType = 19 "pkttype",
        /// The index of the bridge's port by which it came.
        BridgeInputName = 17 "ibrname",
        /// The index of the bridge's port by which it leaves.
        BridgeOutputName = 18 "obrname",
    }
}

numbers! {
    /// A property of a connection.
    ConntrackKey {
        /// Its state, as bits: [`ConntrackKey::NEW`] and others.
        State = 0 "state",
        /// The direction of the packet, one byte.
        Direction = 1 "direction",
        /// Its status, as bits: [`ConntrackKey::DNAT`] and others.
        Status = 2 "status",
        /// Its mark.
        Mark = 3 "mark",
        /// The transport protocol, one byte.
        Protocol = 10 "protocol",
        /// The source port; of a direction.
        SourcePort = 11 "proto-src",
        /// The destination port; of a direction.
        DestinationPort = 12 "proto-dst",
        /// The zone.
        Zone = 17 "zone",
        /// The source address; of a direction.
        SourceIpv4 = 19 "ip saddr",
        /// The destination address; of a direction.
        DestinationIpv4 = 20 "ip daddr",
        /// The source address; of a direction.
        SourceIpv6 = 21 "ip6 saddr",
        /// The destination address; of a direction.
        DestinationIpv6 = 22 "ip6 daddr",
        /// A number of the connection.
        Id = 23 "id",
    }
}

impl ConntrackKey {
    /// Whether each direction has its own value, and one must be named.
    #[must_use]
    pub fn has_direction(self) -> bool {
        matches!(
            self,
            Self::SourcePort
                | Self::DestinationPort
                | Self::SourceIpv4
                | Self::DestinationIpv4
                | Self::SourceIpv6
                | Self::DestinationIpv6
        )
    }

    /// Of [`Self::State`]: the packet has no valid connection.
    pub const INVALID: u32 = 1;
    /// Of [`Self::State`]: packets of both directions were seen.
    pub const ESTABLISHED: u32 = 2;
    /// Of [`Self::State`]: the packet belongs to another connection, such as an ICMP error.
    pub const RELATED: u32 = 4;
    /// Of [`Self::State`]: the packet begins a connection.
    pub const NEW: u32 = 8;
    /// Of [`Self::State`]: the packet is not tracked.
    pub const UNTRACKED: u32 = 64;
    /// Of [`Self::Status`]: the source address is translated.
    pub const SNAT: u32 = 0x10;
    /// Of [`Self::Status`]: the destination address is translated.
    pub const DNAT: u32 = 0x20;
}

numbers! {
    /// How values are compared.
    Comparison {
        /// They are equal.
        Equal = 0 "==",
        /// They are not equal.
        NotEqual = 1 "!=",
        /// The left one is lower.
        Less = 2 "<",
        /// The left one is lower or equal.
        LessOrEqual = 3 "<=",
        /// The left one is higher.
        Greater = 4 ">",
        /// The left one is higher or equal.
        GreaterOrEqual = 5 ">=",
    }
}

numbers! {
    /// What is loaded from the routing table.
    FibResult {
        /// The index of the interface.
        OutputInterface = 1 "oif",
        /// The name of the interface.
        OutputInterfaceName = 2 "oifname",
        /// The type of the address: [`FibResult::LOCAL`] and others.
        AddressType = 3 "type",
    }
}

impl FibResult {
    /// Of [`Self::AddressType`]: an address of another host.
    pub const UNICAST: u32 = 1;
    /// Of [`Self::AddressType`]: an address of this host.
    pub const LOCAL: u32 = 2;
    /// Of [`Self::AddressType`]: a broadcast address.
    pub const BROADCAST: u32 = 3;
    /// Of [`Self::AddressType`]: a multicast address.
    pub const MULTICAST: u32 = 5;
}

/// What the routing table is asked about. Exactly one address is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FibFlags(pub u32);

impl FibFlags {
    /// The source address.
    pub const SOURCE: Self = Self(1);
    /// The destination address.
    pub const DESTINATION: Self = Self(2);
    /// Also the mark.
    pub const MARK: Self = Self(4);
    /// Only the interface by which the packet came.
    pub const INPUT_INTERFACE: Self = Self(8);
    /// Only the interface by which the packet leaves.
    pub const OUTPUT_INTERFACE: Self = Self(16);
    /// Only whether there is a result.
    pub const PRESENT: Self = Self(32);

    /// These flags and others.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// That of its first packet.
    Original,
    /// That of the answers.
    Reply,
}
