//! The wire between controller and agents: messages, their limits, and conversion from and to the
//! plan.
//!
//! Messages and plan values meet only in [`encode_entry`], [`decode_entry`] and [`item`]; nobody
//! else reads a wire message of an entry.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[cfg(any(feature = "client", feature = "server"))]
mod codec;
mod decode;
pub mod draining;
mod encode;
pub mod item;
mod settings;
mod trace;

#[cfg(any(feature = "client", feature = "server"))]
pub use codec::{PlanCodec, PlanEncoder};
pub use decode::{DecodeError, decode_entry};
pub use encode::encode_entry;
pub use trace::TraceContext;

/// The newest version of the wire that this release knows. An agent names it in its first message; a controller
/// answers in the newest version that both know.
pub const WIRE_VERSION: u32 = 1;

/// The oldest version that a controller of this release still speaks. It refuses an older agent.
pub const OLDEST_WIRE_VERSION: u32 = 1;

/// The largest message on the stream, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// How many bytes of entries are put into one message, so that a slow agent costs little. Each stream keeps room
/// for one such message.
pub const CHUNK_BYTES: usize = 16 * 1024;

/// How many times of triggers a batch tells. What is left out is younger than what is told.
pub const TRIGGERS_TOLD: usize = 16;

/// Generated messages; see the .proto files for what they mean.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
#[allow(
    clippy::needless_pass_by_value,
    clippy::too_many_lines,
    let_underscore_drop
)]
pub mod wire {
    include!(concat!(env!("OUT_DIR"), "/portolan.plan.v1.rs"));
}
