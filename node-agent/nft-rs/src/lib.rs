//! nf_tables over nfnetlink, one transaction per send: a codec without I/O and a small blocking socket.
//!
//! - [`Table`], [`Chain`], [`Set`], [`Rule`] and [`Element`] are the objects of nf_tables as values. [`Operation`] and
//!   [`Reply`] are its messages. Both can be encoded and decoded, and no input makes the codec panic. Expressions and
//!   attributes of unknown kinds are kept as received.
//! - [`Batch`] collects operations. The kernel executes all of them or none.
//! - [`Socket`] (feature `socket`, on by default) commits batches, names each refused operation and element, and lists
//!   objects. [`Events`] reports the commits of all programs.
//!
//! ```no_run
//! use nft_rs::{Batch, Element, Family, Field, Key, Set, Socket, Table};
//!
//! let table = Table::new(Family::Ipv4, "example");
//! let web = Set::new("web", [Field::Ipv4Address, Field::Protocol, Field::Port]);
//! let mut batch = Batch::new();
//! batch.add_table(&table);
//! batch.add_set(&table.id(), &web);
//! let key = Key::new().ipv4([10, 96, 0, 1].into()).protocol(6).port(443);
//! batch.add_elements(&table.id(), "web", [Element::new(key)]);
//! Socket::open()?.commit(&batch)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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

#[cfg(feature = "socket")]
mod chunk;
#[cfg(feature = "socket")]
mod commit;
#[cfg(feature = "socket")]
mod dump;
#[cfg(feature = "socket")]
mod error;
#[cfg(feature = "socket")]
mod events;
#[cfg(feature = "socket")]
mod refused;
#[cfg(feature = "socket")]
mod retry;
#[cfg(feature = "socket")]
mod socket;

#[cfg(all(test, feature = "socket"))]
mod fake;
#[cfg(all(test, feature = "socket"))]
mod faults;

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

#[cfg(feature = "socket")]
pub use error::Error;
#[cfg(feature = "socket")]
pub use events::{Event, Events};
#[cfg(feature = "socket")]
pub use netlink_blocking::{Counters, Error as SocketError, Outgoing};
#[cfg(feature = "socket")]
pub use refused::Refused;
#[cfg(feature = "socket")]
pub use retry::Committed;
#[cfg(feature = "socket")]
pub use socket::Socket;

pub use netlink_packet_core::{DecodeError, DefaultNla};
