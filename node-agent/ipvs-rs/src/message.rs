//! The header of IPVS's messages.

use netlink_blocking::message::Header;

pub use netlink_blocking::message::{RawMessage, error_code, messages};

/// What the header of a request says besides its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// Message type: the number the kernel gave the family `IPVS`.
    pub family_id: u16,
    /// Sequence number; answers carry it.
    pub sequence: u32,
    /// Whether the kernel answers a success, too (`NLM_F_ACK`). Errors are always answered.
    pub acknowledge: bool,
}

impl Envelope {
    /// Appends a message with this header to `buffer`; nothing is appended when `payload` fails.
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
