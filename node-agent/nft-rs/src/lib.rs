//! nf_tables over nfnetlink, one transaction per send: a codec without I/O.
//!
//! - [`Table`], [`Chain`], [`Set`], [`Rule`] and [`Element`] are the objects of nf_tables as values. [`Operation`] and
//!   [`Reply`] are its messages. Both can be encoded and decoded, and no input makes the codec panic. Expressions and
//!   attributes of unknown kinds are kept as received.
//! - [`Batch`] collects operations. The kernel executes all of them or none.

#![forbid(unsafe_code)]
#![deny(missing_docs)]
// Outside of tests, because the input is not trusted.
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

mod attribute;
mod batch;
mod bytes;
mod chain;
mod element;
mod elements;
mod errno;
mod expression;
mod family;
mod field;
mod message;
mod operation;
mod query;
mod reply;
mod rule;
mod set;
mod table;
pub mod user_data;

pub use attribute::EncodeError;
pub use batch::{Batch, Refusal};
pub use bytes::{Bytes, Key, KeyReader};
pub use chain::{Base, Chain, ChainKind, Hook, Policy};
pub use element::{Count, Element};
pub use elements::Elements;
pub use errno::Errno;
pub use expression::{
    Comparison, ConntrackKey, Direction, Expression, FibFlags, FibResult, Hash, HeaderBase,
    Masquerade, MetaKey, Nat, NatFlags, NatKind, Register, Reject, SetChange, SetUpdate, Verdict,
};
pub use family::{Family, TableId};
pub use field::Field;
pub use message::{Envelope, RawMessage, error_code, failed_offset, messages};
pub use operation::Operation;
pub use query::Query;
pub use reply::{Generation, Reply};
pub use rule::Rule;
pub use set::{Set, SetFlags, SetPolicy};
pub use table::{Table, TableFlags};

pub use netlink_packet_core::{DecodeError, DefaultNla};
