//! The header of IPVS messages.

use netlink_blocking::message::Header;

pub use netlink_blocking::message::{RawMessage, error_code, messages};

/// The header of a request, without its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// Message type: the number that the kernel assigned to the family `IPVS`.
    pub family_id: u16,
    /// Sequence number, which the answers repeat.
    pub sequence: u32,
    /// Whether the kernel also acknowledges success (`NLM_F_ACK`). Errors are always reported.
    pub acknowledge: bool,
}

impl Envelope {
    /// Appends a message with this header to `buffer`. If `payload` fails, the buffer is unchanged.
    pub(crate) fn put<E>(
        self,
        buffer: &mut Vec<u8>,
        flags: u16,
        payload: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let header = Header {
            message_type: self.family_id,
            flags,
            sequence: self.sequence,
            acknowledge: self.acknowledge,
        };
        header.put(buffer, payload)
    }
}
