//! Netlink framing: one datagram carries many messages, each with a header of its own.

use netlink_packet_core::{
    DecodeError, Emitable, NLM_F_ACK, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer,
    NetlinkHeader, Parseable,
};

/// `sizeof(struct nlmsghdr)`.
pub const HEADER_BYTES: usize = 16;

/// What the header of a message says besides its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The message type.
    pub message_type: u16,
    /// Flags beside `NLM_F_REQUEST` and `NLM_F_ACK`.
    pub flags: u16,
    /// Sequence number; answers carry it.
    pub sequence: u32,
    /// Whether the kernel answers a success, too (`NLM_F_ACK`). Errors are always answered.
    pub acknowledge: bool,
}

impl Header {
    /// Appends a message with this header to `buffer`; nothing is appended when `payload` fails.
    ///
    /// # Errors
    /// That of `payload`.
    pub fn put<E>(
        self,
        buffer: &mut Vec<u8>,
        payload: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = buffer.len();
        // Attributes are padded to a multiple of four, counted from the beginning of the buffer.
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

/// One message out of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawMessage<'a> {
    /// Its netlink header.
    pub header: NetlinkHeader,
    /// What follows the netlink header.
    pub payload: &'a [u8],
}

/// Walks over the messages of a datagram; stops after the first broken one.
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

/// The error number if `message` is an acknowledgement or the end of a dump: 0 for success, else a
/// positive number (`errno`, or one of the subsystem's own). `None` if it is neither.
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

/// Stands for an error message too short to hold a number.
const EBADMSG: i32 = 74;
