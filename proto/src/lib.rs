//! The wire protocol between controller and agents: messages, their limits, and conversion from and to the plan.
//!
//! Wire messages of entries are converted to and from plan values only in [`encode_entry`], [`decode_entry`] and
//! [`item`]. No other code reads them.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[cfg(any(feature = "client", feature = "server"))]
mod codec;
mod decode;
pub mod draining;
mod encode;
mod field;
pub mod item;
mod settings;
mod trace;

use std::time::Duration;

#[cfg(any(feature = "client", feature = "server"))]
pub use codec::{PlanCodec, PlanEncoder};
pub use decode::decode_entry;
pub use encode::encode_entry;
pub use field::DecodeError;
pub use trace::TraceContext;

/// The newest wire version that this release supports. An agent sends it in its first message, and a controller
/// answers in the newest version that both support.
pub const WIRE_VERSION: u32 = 2;

/// The oldest wire version that a controller of this release supports. It refuses an older agent.
pub const OLDEST_WIRE_VERSION: u32 = 2;

/// The largest message on the stream, in bytes. A message of a batch has items up to [`CHUNK_BYTES`] and one more, which
/// is hardly larger than that.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;

/// The longest token that a controller accepts, in bytes. Those of an API server have one or two thousand.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// The largest value of an entry that a receiver keeps, in bytes. A larger one counts as received, but is not applied.
pub const MAX_ENTRY_BYTES: usize = 1024 * 1024;

/// The number of bytes of entries that are put into one message. It is small because each stream keeps a buffer of
/// the size of its largest message, and a slow agent must cost little memory.
pub const CHUNK_BYTES: usize = 16 * 1024;

/// The maximum number of trigger times in a batch. The oldest ones are sent.
pub const MAX_TRIGGERS: usize = 16;

/// Age of a controller's objects from which on it is outdated; see [`wire::Freshness`]. A healthy watch is opened again
/// before it was silent for so long.
pub const STALE_AFTER: Duration = Duration::from_secs(90);

/// The generated messages; see the .proto files for their meaning.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
#[allow(
    clippy::needless_pass_by_value,
    clippy::too_many_lines,
    let_underscore_drop
)]
pub mod wire {
    include!(concat!(env!("OUT_DIR"), "/portolan.plan.v1.rs"));
}

impl std::fmt::Debug for wire::Renewal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Renewal")
    }
}

#[cfg(test)]
mod tests {
    use super::wire;

    #[test]
    fn a_token_on_its_way_is_printed_nowhere() {
        let renewal = wire::Renewal {
            token: "abc.def.ghi".into(),
        };
        let message = wire::AgentMessage {
            message: Some(wire::agent_message::Message::Renewal(renewal)),
        };
        assert!(!format!("{message:?}").contains("abc"), "{message:?}");
    }
}
