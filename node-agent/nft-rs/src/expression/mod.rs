//! Expressions: what a rule does with a packet, step by step.
//!
//! An expression loads something into registers, compares registers, or decides about the packet. Most values have
//! constructors with the names of what `nft` writes. The messages are in `encode` and `decode`, and the texts in `text`.

mod actions;
mod build;
mod decode;
mod encode;
mod keys;
mod kinds;
mod register;
mod text;
mod translate;

pub use actions::{Reject, SetChange, SetUpdate, Verdict};
pub use keys::{Comparison, ConntrackKey, Direction, FibFlags, FibResult, HeaderBase, MetaKey};
pub use register::Register;
pub use translate::{Masquerade, Nat, NatFlags, NatKind};

use std::sync::Arc;

use netlink_packet_core::DefaultNla;

use crate::bytes::Bytes;

/// One step of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expression {
    /// Loads bytes of the packet.
    Payload {
        /// The header from which the offset counts.
        base: HeaderBase,
        /// The first byte.
        offset: u32,
        /// The number of bytes.
        length: u32,
        /// Where they are loaded to.
        destination: Register,
    },
    /// Loads a property of the packet.
    Meta {
        /// The property.
        key: MetaKey,
        /// Where it is loaded to.
        destination: Register,
    },
    /// Sets a property of the packet.
    MetaSet {
        /// The property.
        key: MetaKey,
        /// What it is set to.
        source: Register,
    },
    /// Loads a property of the packet's connection. Ends the rule if there is no connection.
    Conntrack {
        /// The property.
        key: ConntrackKey,
        /// The direction, for properties that each direction has.
        direction: Option<Direction>,
        /// Where it is loaded to.
        destination: Register,
    },
    /// Ends the rule unless the comparison is true.
    Compare {
        /// The left operand.
        source: Register,
        /// How they are compared: bytewise, the first byte counts most.
        operator: Comparison,
        /// The right operand.
        value: Bytes,
    },
    /// Ends the rule unless a value is in a range.
    Range {
        /// The value.
        source: Register,
        /// Whether it must be outside of the range.
        inverted: bool,
        /// The lowest value.
        first: Bytes,
        /// The highest value.
        last: Bytes,
    },
    /// Computes `(source & mask) ^ xor`, as long as the mask.
    Bitwise {
        /// The operand.
        source: Register,
        /// Where the result is loaded to.
        destination: Register,
        /// Bits that are kept.
        mask: Bytes,
        /// Bits that are then flipped.
        xor: Bytes,
    },
    /// Ends the rule unless a set contains a key. Of a map, also loads the data of the key.
    Lookup {
        /// The name of the set.
        set: Arc<str>,
        /// The key.
        source: Register,
        /// Where the data is loaded to.
        destination: Option<Register>,
        /// Whether the set must not contain the key.
        inverted: bool,
    },
    /// Loads a constant.
    Immediate {
        /// Where it is loaded to.
        destination: Register,
        /// The constant.
        value: Bytes,
    },
    /// Decides about the packet.
    Verdict(Verdict),
    /// Loads a number from `offset` to `offset + modulus - 1`.
    Numgen {
        /// Whether it is random; otherwise it counts up.
        random: bool,
        /// How many numbers there are.
        modulus: u32,
        /// The lowest number.
        offset: u32,
        /// Where it is loaded to.
        destination: Register,
    },
    /// Loads a number made from registers (jhash).
    Jhash(Hash),
    /// Translates the source or destination address.
    Nat(Nat),
    /// Translates the source address to that of the interface by which the packet leaves.
    Masquerade(Masquerade),
    /// Refuses the packet with an answer.
    Reject(Reject),
    /// Asks the routing table.
    Fib {
        /// What is loaded.
        result: FibResult,
        /// What is asked about.
        flags: FibFlags,
        /// Where it is loaded to.
        destination: Register,
    },
    /// Changes an element of a set.
    SetUpdate(SetUpdate),
    /// Counts packets.
    Counter {
        /// The number of packets.
        packets: u64,
        /// The number of their bytes.
        bytes: u64,
    },
    /// Another expression, as received.
    Other {
        /// Its name.
        name: Arc<str>,
        /// Its attributes.
        attributes: Vec<DefaultNla>,
    },
}

/// A number made from registers: `offset + hash(registers) mod modulus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash {
    /// The first register.
    pub source: Register,
    /// The number of bytes.
    pub length: u32,
    /// How many numbers there are.
    pub modulus: u32,
    /// What makes this hash different from others. `None` lets the kernel choose.
    pub seed: Option<u32>,
    /// The lowest number.
    pub offset: u32,
    /// Where the number is loaded to.
    pub destination: Register,
}
