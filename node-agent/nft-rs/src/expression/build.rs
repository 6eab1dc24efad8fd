//! Constructors, so that rules read like what `nft` prints.

use std::sync::Arc;
use std::time::Duration;

use super::{
    Comparison, ConntrackKey, Direction, Expression, FibFlags, FibResult, Hash, HeaderBase,
    Masquerade, MetaKey, Nat, NatFlags, NatKind, Register, Reject, SetChange, SetUpdate, Verdict,
};
use crate::bytes::Bytes;
use crate::family::Family;

impl Expression {
    /// Loads bytes of the packet.
    #[must_use]
    pub fn payload(base: HeaderBase, offset: u32, length: u32, destination: Register) -> Self {
        Self::Payload {
            base,
            offset,
            length,
            destination,
        }
    }

    /// Loads the source address: 4 bytes of IPv4 or 16 bytes of IPv6, in a table of that family.
    #[must_use]
    pub fn source_address(family: Family, destination: Register) -> Self {
        match family {
            Family::Ipv6 => Self::payload(HeaderBase::Network, 8, 16, destination),
            _ => Self::payload(HeaderBase::Network, 12, 4, destination),
        }
    }

    /// Loads the destination address, as [`Self::source_address`].
    #[must_use]
    pub fn destination_address(family: Family, destination: Register) -> Self {
        match family {
            Family::Ipv6 => Self::payload(HeaderBase::Network, 24, 16, destination),
            _ => Self::payload(HeaderBase::Network, 16, 4, destination),
        }
    }

    /// Loads the source port of TCP, UDP or SCTP.
    #[must_use]
    pub fn source_port(destination: Register) -> Self {
        Self::payload(HeaderBase::Transport, 0, 2, destination)
    }

    /// Loads the destination port of TCP, UDP or SCTP.
    #[must_use]
    pub fn destination_port(destination: Register) -> Self {
        Self::payload(HeaderBase::Transport, 2, 2, destination)
    }

    /// Loads a property of the packet.
    #[must_use]
    pub fn meta(key: MetaKey, destination: Register) -> Self {
        Self::Meta { key, destination }
    }

    /// Loads the transport protocol.
    #[must_use]
    pub fn protocol(destination: Register) -> Self {
        Self::meta(MetaKey::Protocol, destination)
    }

    /// Loads a property of the connection that has no direction.
    #[must_use]
    pub fn conntrack(key: ConntrackKey, destination: Register) -> Self {
        Self::Conntrack {
            key,
            direction: None,
            destination,
        }
    }

    /// Loads a property of the connection as its first packet had it, before any translation. For a property without
    /// a direction, this is [`Self::conntrack`].
    #[must_use]
    pub fn conntrack_original(key: ConntrackKey, destination: Register) -> Self {
        Self::Conntrack {
            key,
            direction: key.has_direction().then_some(Direction::Original),
            destination,
        }
    }

    /// Loads the source or destination address of the connection's first packet, before any translation.
    #[must_use]
    pub fn original_address(family: Family, kind: NatKind, destination: Register) -> Self {
        let key = match (family, kind) {
            (Family::Ipv6, NatKind::Source) => ConntrackKey::SourceIpv6,
            (Family::Ipv6, NatKind::Destination) => ConntrackKey::DestinationIpv6,
            (_, NatKind::Source) => ConntrackKey::SourceIpv4,
            (_, NatKind::Destination) => ConntrackKey::DestinationIpv4,
        };
        Self::conntrack_original(key, destination)
    }

    /// Continues if a register has this value.
    #[must_use]
    pub fn equal(source: Register, value: impl Into<Bytes>) -> Self {
        Self::compare(source, Comparison::Equal, value)
    }

    /// Continues if a register has another value.
    #[must_use]
    pub fn not_equal(source: Register, value: impl Into<Bytes>) -> Self {
        Self::compare(source, Comparison::NotEqual, value)
    }

    /// Continues if a comparison is true.
    #[must_use]
    pub fn compare(source: Register, operator: Comparison, value: impl Into<Bytes>) -> Self {
        Self::Compare {
            source,
            operator,
            value: value.into(),
        }
    }

    /// Clears the bits of a register that are not in a mask.
    #[must_use]
    pub fn mask(register: Register, mask: impl Into<Bytes>) -> Self {
        let mask = mask.into();
        let xor = Bytes::from(vec![0; mask.len()]);
        Self::Bitwise {
            source: register,
            destination: register,
            mask,
            xor,
        }
    }

    /// Continues if a register (in host byte order) has one of these bits, and clears the others.
    #[must_use]
    pub fn any_bit(register: Register, bits: u32) -> [Self; 2] {
        [
            Self::mask(register, Bytes::host_u32(bits)),
            Self::not_equal(register, Bytes::host_u32(0)),
        ]
    }

    /// Continues if a register (in host byte order) has none of these bits, and clears the others.
    #[must_use]
    pub fn no_bit(register: Register, bits: u32) -> [Self; 2] {
        [
            Self::mask(register, Bytes::host_u32(bits)),
            Self::equal(register, Bytes::host_u32(0)),
        ]
    }

    /// Continues if a set contains the key in these registers.
    #[must_use]
    pub fn lookup(set: impl Into<Arc<str>>, source: Register) -> Self {
        Self::Lookup {
            set: set.into(),
            source,
            destination: None,
            inverted: false,
        }
    }

    /// Continues if a set does not contain the key in these registers.
    #[must_use]
    pub fn lookup_missing(set: impl Into<Arc<str>>, source: Register) -> Self {
        Self::Lookup {
            set: set.into(),
            source,
            destination: None,
            inverted: true,
        }
    }

    /// Continues if a map contains the key in these registers, and loads its data. `nft` 1.0.6 cannot list a rule with
    /// two of them.
    #[must_use]
    pub fn lookup_map(map: impl Into<Arc<str>>, source: Register, destination: Register) -> Self {
        Self::Lookup {
            set: map.into(),
            source,
            destination: Some(destination),
            inverted: false,
        }
    }

    /// Loads a constant.
    #[must_use]
    pub fn immediate(destination: Register, value: impl Into<Bytes>) -> Self {
        Self::Immediate {
            destination,
            value: value.into(),
        }
    }

    /// Accepts the packet.
    #[must_use]
    pub fn accept() -> Self {
        Self::Verdict(Verdict::Accept)
    }

    /// Drops the packet.
    #[must_use]
    pub fn drop() -> Self {
        Self::Verdict(Verdict::Drop)
    }

    /// Leaves the chain.
    #[must_use]
    pub fn leave() -> Self {
        Self::Verdict(Verdict::Return)
    }

    /// Enters a chain, and comes back at its end.
    #[must_use]
    pub fn jump(chain: impl Into<Arc<str>>) -> Self {
        Self::Verdict(Verdict::Jump(chain.into()))
    }

    /// Enters a chain, and does not come back.
    #[must_use]
    pub fn goto(chain: impl Into<Arc<str>>) -> Self {
        Self::Verdict(Verdict::Goto(chain.into()))
    }

    /// Loads a random number below the modulus, in host byte order.
    #[must_use]
    pub fn random(modulus: u32, destination: Register) -> Self {
        Self::Numgen {
            random: true,
            modulus,
            offset: 0,
            destination,
        }
    }

    /// Loads a number below the modulus, in host byte order, made from `length` bytes of registers.
    #[must_use]
    pub fn jhash(
        source: Register,
        length: u32,
        modulus: u32,
        seed: u32,
        destination: Register,
    ) -> Self {
        Self::Jhash(Hash {
            source,
            length,
            modulus,
            seed: Some(seed),
            offset: 0,
            destination,
        })
    }

    /// Translates the destination to the address and port in registers.
    #[must_use]
    pub fn dnat(family: Family, address: Register, port: Option<Register>) -> Self {
        Self::Nat(Nat {
            kind: NatKind::Destination,
            family,
            address: Some(address),
            last_address: None,
            port,
            last_port: None,
            flags: NatFlags::NONE,
        })
    }

    /// Translates the source to the address of the interface by which the packet leaves.
    #[must_use]
    pub fn masquerade(flags: NatFlags) -> Self {
        Self::Masquerade(Masquerade {
            flags,
            ..Masquerade::default()
        })
    }

    /// As [`Self::masquerade`], with a source port from the range whose ends are in two registers (network byte order).
    #[must_use]
    pub fn masquerade_to_ports(flags: NatFlags, first: Register, last: Register) -> Self {
        Self::Masquerade(Masquerade {
            flags,
            port: Some(first),
            last_port: Some(last),
        })
    }

    /// Refuses the packet by a TCP reset.
    #[must_use]
    pub fn reject_tcp() -> Self {
        Self::Reject(Reject::TcpReset)
    }

    /// Refuses the packet by a message that the port is unreachable, in a table of this family.
    #[must_use]
    pub fn reject_port(family: Family) -> Self {
        Self::Reject(Reject::port_unreachable(family))
    }

    /// Loads the type of an address ([`FibResult::LOCAL`] and others, in host byte order).
    #[must_use]
    pub fn address_type(flags: FibFlags, destination: Register) -> Self {
        Self::Fib {
            result: FibResult::AddressType,
            flags,
            destination,
        }
    }

    /// Adds an element of a map, or starts its timeout again.
    #[must_use]
    pub fn update_map(
        map: impl Into<Arc<str>>,
        key: Register,
        data: Register,
        timeout: Duration,
    ) -> Self {
        Self::SetUpdate(SetUpdate {
            set: map.into(),
            change: SetChange::Update,
            key,
            data: Some(data),
            timeout: Some(timeout),
            inverted: false,
            counts: false,
        })
    }

    /// Counts the packet in an element of a set, which is added if it is missing, or starts its timeout again.
    #[must_use]
    pub fn count_in(set: impl Into<Arc<str>>, key: Register, timeout: Duration) -> Self {
        Self::SetUpdate(SetUpdate {
            set: set.into(),
            change: SetChange::Update,
            key,
            data: None,
            timeout: Some(timeout),
            inverted: false,
            counts: true,
        })
    }

    /// Counts packets from zero.
    #[must_use]
    pub fn counter() -> Self {
        Self::Counter {
            packets: 0,
            bytes: 0,
        }
    }
}
