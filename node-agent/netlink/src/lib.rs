//! Blocking netlink for programs that write much and need an answer to every request.
//!
//! | module | purpose |
//! | --- | --- |
//! | [`attribute`] | writes and reads attributes; a length that does not fit is an error, not a panic |
//! | [`message`] | headers; the messages of a datagram |
//! | [`Channel`] (feature `socket`) | sends datagrams, receives answers within a time limit, opens another socket after a failure |
//! | `testing` (feature `testing`) | a transport that loses, truncates and delays the answers of a fake kernel; captures; tests in network namespaces |
//!
//! The crate is independent of kernel subsystems; `ipvs-rs`, `ipset-rs` and `nft-rs` are built on it.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
// Outside of tests, because the input is not trusted.
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

pub mod attribute;
pub mod message;

#[cfg(feature = "socket")]
mod channel;
#[cfg(feature = "socket")]
mod error;
#[cfg(feature = "socket")]
mod transport;

#[cfg(feature = "testing")]
pub mod testing;

#[cfg(feature = "socket")]
pub use channel::{Channel, Counters, Opener, Outgoing, Received};
#[cfg(feature = "socket")]
pub use error::Error;
#[cfg(feature = "socket")]
pub use transport::{ANSWER_TIMEOUT, Options, Transport};
