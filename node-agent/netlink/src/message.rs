//! Netlink framing: one datagram contains many messages, each with its own header.

use netlink_packet_core::{
    DecodeError, Emitable, NLM_F_ACK, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer,
    NetlinkHeader, Parseable,
};

/// `sizeof(struct nlmsghdr)`.
pub const HEADER_BYTES: usize = 16;

/// The header of a message, without its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The message type.
    pub message_type: u16,
    /// Flags other than `NLM_F_REQUEST` and `NLM_F_ACK`.
    pub flags: u16,
    /// Sequence number, which the answers repeat.
    pub sequence: u32,
    /// Whether the kernel also acknowledges success (`NLM_F_ACK`). Errors are always reported.
    pub acknowledge: bool,
}

impl Header {
    /// Appends a message with this header to `buffer`. If `payload` fails, the buffer is unchanged.
    ///
    /// # Errors
    /// The error of `payload`.
    pub fn put<E>(
        self,
        buffer: &mut Vec<u8>,
        payload: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = buffer.len();
        // Attributes are padded to a multiple of four bytes, counted from the start of the buffer.
        if !start.is_multiple_of(4) {
            let mut message = Vec::new();
            self.put(&mut message, payload)?;
            buffer.append(&mut message);
            return Ok(());
        }
        buffer.extend_from_slice(&[0; HEADER_BYTES]);
        if let Err(error) = payload(buffer) {
            buffer.truncate(start);
            return Err(error);
        }
        let acknowledge = if self.acknowledge { NLM_F_ACK } else { 0 };
        let mut header = NetlinkHeader::default();
        let message = buffer.get_mut(start..).unwrap_or_default();
        header.length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        header.message_type = self.message_type;
        header.flags = NLM_F_REQUEST | acknowledge | self.flags;
        header.sequence_number = self.sequence;
        header.emit(message);
        Ok(())
    }
}

/// One message of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawMessage<'a> {
    /// Its netlink header.
    pub header: NetlinkHeader,
    /// The bytes after the netlink header.
    pub payload: &'a [u8],
}

/// Iterates over the messages of a datagram, and stops after the first malformed one.
pub fn messages(datagram: &[u8]) -> impl Iterator<Item = Result<RawMessage<'_>, DecodeError>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let current = std::mem::take(&mut rest);
        Some(NetlinkBuffer::new_checked(current).and_then(|buffer| {
            let header = NetlinkHeader::parse(&buffer)?;
            let aligned = (buffer.length() as usize).next_multiple_of(4);
            rest = current.get(aligned..).unwrap_or_default();
            Ok(RawMessage {
                header,
                payload: buffer.payload(),
            })
        }))
    })
}

/// The error number if `message` is an acknowledgement or the end of a dump: 0 for success, otherwise a positive
/// number (`errno`, or a number of the subsystem). `None` for other messages.
#[must_use]
pub fn error_code(message: &RawMessage<'_>) -> Option<i32> {
    let code = || {
        let bytes = message.payload.first_chunk::<4>()?;
        Some(i32::from_ne_bytes(*bytes).saturating_neg())
    };
    match message.header.message_type {
        NLMSG_ERROR => Some(code().unwrap_or(EBADMSG)),
        NLMSG_DONE => Some(code().unwrap_or(0)),
        _ => None,
    }
}

/// Returned for an error message that is too short to contain a number.
const EBADMSG: i32 = 74;
