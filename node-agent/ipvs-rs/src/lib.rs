//! IPVS over generic netlink: a codec without I/O and a small blocking socket.
//!
//! - [`Request`] and [`Reply`] are the messages of the kernel's generic netlink family `IPVS`. Both can be encoded
//!   and decoded. No input makes the codec panic, and unknown attributes are kept in a field named `other`.
//! - [`Socket`] (feature `socket`, on by default) reads and writes: dumps of virtual servers and real servers, and
//!   [`Socket::execute`], which packs many writes into one send and assigns the kernel's errors to them by sequence
//!   number.
//!
//! ```no_run
//! use ipvs_rs::{Destination, Protocol, Request, Service, ServiceKey, Socket};
//!
//! let key = ServiceKey::address(Protocol::Tcp, "10.96.0.1".parse()?, 443);
//! let backend = Destination::masquerade("10.244.1.7".parse()?, 6443, 1);
//! let mut socket = Socket::open()?;
//! let results = socket.execute(
//!     &[
//!         Request::NewService(Service::new(key, "rr")),
//!         Request::NewDestination(key, backend),
//!     ],
//!     64,
//! );
//! assert!(results.iter().all(Result::is_ok));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The counters of virtual servers are read ([`Traffic`]). Those of real servers are skipped, because there are many
//! more of them and they are of use to other kinds of programs.

#![forbid(unsafe_code)]
#![deny(missing_docs)]
// Outside of tests, because the input is not trusted.
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

mod attribute;
mod destination;
mod key;
mod message;
mod reply;
mod request;
mod service;
mod timeouts;
mod traffic;

#[cfg(feature = "socket")]
mod address_family;
mod ahead;
#[cfg(feature = "socket")]
mod batch;
#[cfg(feature = "socket")]
mod error;
#[cfg(feature = "socket")]
mod family;
#[cfg(feature = "socket")]
mod scheduler;
#[cfg(feature = "socket")]
mod socket;
#[cfg(feature = "socket")]
mod tap;

#[cfg(all(test, feature = "socket"))]
mod fake;
#[cfg(all(test, feature = "socket"))]
mod faults;

pub use address_family::Family;
pub use attribute::EncodeError;
pub use destination::{Destination, DestinationKey, Forwarding, Tunnel};
pub use key::{Protocol, ServiceKey};
pub use message::{Envelope, RawMessage, error_code, messages};
pub use reply::{Info, Reply};
pub use request::Request;
pub use service::{Flags, Service};
pub use timeouts::Timeouts;
pub use traffic::Traffic;

#[cfg(feature = "socket")]
pub use error::Error;
#[cfg(feature = "socket")]
pub use netlink_blocking::{Counters, Error as SocketError, Outgoing};
#[cfg(feature = "socket")]
pub use socket::{DEFAULT_PER_SEND, MAX_PER_SEND, Socket};

pub use netlink_packet_core::{DecodeError, DefaultNla};

/// Name of the generic netlink family in the kernel.
pub const FAMILY_NAME: &str = "IPVS";

/// Version of the generic netlink family that this crate supports (`IPVS_GENL_VERSION`).
pub const FAMILY_VERSION: u8 = 1;
