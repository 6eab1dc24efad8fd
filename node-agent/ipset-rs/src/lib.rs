//! ipset over nfnetlink, with many entries per message: a codec without I/O and a small blocking socket.
//!
//! - [`Request`] and [`Reply`] are messages of nfnetlink's subsystem for IP sets, protocol 6 and 7. Both can be
//!   encoded and decoded, and no input makes the codec panic. Entries of unknown types are kept as received.
//! - [`Socket`] (feature `socket`, on by default) creates, destroys, swaps and lists sets, and adds and deletes
//!   entries: hundreds per message, several messages per send, and one result for each entry.
//!
//! ```no_run
//! use ipset_rs::{CreateOptions, Entry, Family, SetType, Socket};
//!
//! let mut socket = Socket::open()?;
//! socket.create("web", SetType::HashIpPort, Family::Ipv4, &CreateOptions::default())?;
//! let entries: Vec<Entry> = vec!["10.96.0.1,tcp:443".parse()?, "10.96.0.10,udp:53".parse()?];
//! for result in socket.add("web", &entries) {
//!     result?;
//! }
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
mod entry;
mod entry_text;
mod kind;
mod message;
mod options;
mod parts;
mod reply;
mod request;

#[cfg(feature = "socket")]
mod error;
#[cfg(feature = "socket")]
mod exchange;
#[cfg(feature = "socket")]
mod fill;
#[cfg(feature = "socket")]
mod socket;
#[cfg(feature = "socket")]
mod tap;

#[cfg(all(test, feature = "socket"))]
mod fake;
#[cfg(all(test, feature = "socket"))]
mod faults;

pub use attribute::EncodeError;
pub use entry::Entry;
pub use entry_text::ParseEntryError;
pub use kind::{Family, Protocol, SetName, SetNameError, SetType};
pub use message::{Envelope, RawMessage, error_code, failed_line, messages};
pub use options::{CreateOptions, Detail};
pub use reply::{Header, Reply, SetPart};
pub use request::{Request, Revisions};

#[cfg(feature = "socket")]
pub use error::Error;
#[cfg(feature = "socket")]
pub use netlink_blocking::{Counters, Error as SocketError, Outgoing};
#[cfg(feature = "socket")]
pub use socket::{Set, Socket};

pub use netlink_packet_core::{DecodeError, DefaultNla};

/// Newest protocol version that this crate supports; version 6 (kernels before 4.19) is supported, too.
pub const PROTOCOL_VERSION: u8 = 7;
