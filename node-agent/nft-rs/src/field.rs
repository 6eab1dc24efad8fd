//! The components of keys and data, with the numbers of `nft`'s data types.
//!
//! The kernel only copies these numbers. `nft` needs them to print elements. In a concatenation, each component has six
//! bits of the number, the last component the lowest.

/// Bits of one component in the type number of a concatenation.
const TYPE_BITS: u32 = 6;

/// One component of a key or of the data of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Field {
    /// `ipv4_addr`.
    Ipv4Address,
    /// `ipv6_addr`.
    Ipv6Address,
    /// `ether_addr`.
    EtherAddress,
    /// `inet_proto`: the number of a transport protocol.
    Protocol,
    /// `inet_service`: a port.
    Port,
    /// `mark`: a number of four bytes in host byte order.
    Mark,
    /// `iface_index`.
    InterfaceIndex,
    /// `ifname`: 16 bytes.
    InterfaceName,
    /// Another type.
    Other {
        /// The number of the type, which may be that of a whole concatenation.
        kind: u32,
        /// Its length in bytes.
        length: u32,
    },
}

/// The types that a number alone identifies.
const KNOWN: [Field; 8] = [
    Field::Ipv4Address,
    Field::Ipv6Address,
    Field::EtherAddress,
    Field::Protocol,
    Field::Port,
    Field::Mark,
    Field::InterfaceIndex,
    Field::InterfaceName,
];

impl Field {
    /// The number of the type in `nft`.
    #[must_use]
    pub fn kind(self) -> u32 {
        match self {
            Self::Ipv4Address => 7,
            Self::Ipv6Address => 8,
            Self::EtherAddress => 9,
            Self::Protocol => 12,
            Self::Port => 13,
            Self::Mark => 19,
            Self::InterfaceIndex => 20,
            Self::InterfaceName => 41,
            Self::Other { kind, .. } => kind,
        }
    }

    /// Its length in bytes, without padding.
    #[must_use]
    pub fn length(self) -> u32 {
        match self {
            Self::Ipv4Address | Self::Mark | Self::InterfaceIndex => 4,
            Self::Ipv6Address | Self::InterfaceName => 16,
            Self::EtherAddress => 6,
            Self::Protocol => 1,
            Self::Port => 2,
            Self::Other { length, .. } => length,
        }
    }

    /// Whether `nft` reads the value in host byte order.
    #[must_use]
    pub fn is_host_order(self) -> bool {
        matches!(
            self,
            Self::Mark | Self::InterfaceIndex | Self::InterfaceName
        )
    }
}

/// The type number of a key or of data.
pub(crate) fn kind(fields: &[Field]) -> u32 {
    fields.iter().fold(0, |number, field| {
        number.wrapping_shl(TYPE_BITS) | field.kind()
    })
}

/// The length of a key or of data in bytes: a single component is not padded.
pub(crate) fn length(fields: &[Field]) -> u32 {
    match fields {
        [single] => single.length(),
        many => many.iter().fold(0, |sum: u32, field| {
            sum.saturating_add(padded(field.length()))
        }),
    }
}

/// The fields with a type number and a length. A concatenation with an unknown component is one unknown field.
pub(crate) fn fields(kind: u32, length: u32) -> Vec<Field> {
    let mut fields = Vec::new();
    let mut rest = kind;
    while rest > 0 {
        let number = rest & (1_u32.wrapping_shl(TYPE_BITS).wrapping_sub(1));
        match KNOWN.iter().find(|field| field.kind() == number) {
            Some(field) => fields.insert(0, *field),
            None => return vec![Field::Other { kind, length }],
        }
        rest = rest.wrapping_shr(TYPE_BITS);
    }
    if self::length(&fields) == length {
        fields
    } else {
        vec![Field::Other { kind, length }]
    }
}

fn padded(length: u32) -> u32 {
    length.checked_next_multiple_of(4).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are those that `nft` 1.0.6 writes for the same types.
    #[test]
    fn a_concatenation_has_the_number_and_length_of_nft() {
        use Field::{Ipv4Address, Ipv6Address, Mark, Port, Protocol};
        let frontend = [Ipv4Address, Protocol, Port, Mark];
        assert_eq!((kind(&frontend), length(&frontend)), (0x001c_c353, 16));
        assert_eq!(fields(0x001c_c353, 16), frontend);
        assert_eq!((kind(&[Port]), length(&[Port])), (13, 2));
        let backend = [Ipv6Address, Port];
        assert_eq!(length(&backend), 20);
        assert_eq!(fields(kind(&backend), 20), backend);
    }

    #[test]
    fn an_unknown_type_is_kept_as_a_whole() {
        for (number, length) in [(63, 4), (0x001c_c353, 20), (0xffff_ff00, 16), (0, 4)] {
            let other = [Field::Other {
                kind: number,
                length,
            }];
            assert_eq!(fields(number, length), other);
            assert_eq!((kind(&other), super::length(&other)), (number, length));
        }
    }
}
