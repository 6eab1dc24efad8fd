//! Netlink framing and the nfnetlink header: one datagram carries many messages.

use netlink_packet_core::{
    DecodeError, Emitable, NLM_F_ACK, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer,
    NetlinkHeader, Parseable, parse_u32_be,
};

use crate::attribute;
use crate::entry::LINENO;

/// `sizeof(struct nlmsghdr)`.
const HEADER_LENGTH: usize = 16;

/// `NFNL_SUBSYS_IPSET`: upper byte of the message type.
const SUBSYSTEM: u8 = 6;

/// `struct nfgenmsg`: family `AF_INET` as the ipset program writes it (the kernel looks at the
/// attribute instead), version 0, resource 0.
const NFNETLINK_HEADER: [u8; 4] = [2, 0, 0, 0];

/// What the header of a message says besides its command and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// Sequence number; answers carry it.
    pub sequence: u32,
    /// Protocol version, 6 or 7.
    pub protocol: u8,
    /// Whether the kernel answers a success, too (`NLM_F_ACK`). Errors are always answered.
    pub acknowledge: bool,
}

impl Envelope {
    /// Appends a message with this header to `buffer`; nothing is appended when `payload` fails.
    pub(crate) fn put<E>(
        self,
        buffer: &mut Vec<u8>,
        command: u8,
        flags: u16,
        payload: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut message = vec![0; HEADER_LENGTH];
        message.extend_from_slice(&NFNETLINK_HEADER);
        payload(&mut message)?;
        let acknowledge = if self.acknowledge { NLM_F_ACK } else { 0 };
        let mut header = NetlinkHeader::default();
        header.length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        header.message_type = u16::from_be_bytes([SUBSYSTEM, command]);
        header.flags = NLM_F_REQUEST | acknowledge | flags;
        header.sequence_number = self.sequence;
        header.emit(&mut message);
        buffer.extend_from_slice(&message);
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

impl<'a> RawMessage<'a> {
    /// The command and the attributes behind the nfnetlink header.
    pub(crate) fn split(&self) -> Result<(u8, &'a [u8]), DecodeError> {
        let [subsystem, command] = self.header.message_type.to_be_bytes();
        if subsystem != SUBSYSTEM {
            return Err(DecodeError::from(format!(
                "nfnetlink subsystem {subsystem} is not ipset"
            )));
        }
        let attributes = self
            .payload
            .get(NFNETLINK_HEADER.len()..)
            .ok_or("message is shorter than the nfnetlink header")?;
        Ok((command, attributes))
    }
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
/// positive number (`errno`, or from 4097 on one of ipset's own). `None` if it is neither.
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

/// Which entry of a message failed, counted from 1: the kernel sends the message back with its
/// line number set to that of the entry. `None` if the error is not about one entry.
#[must_use]
pub fn failed_line(message: &RawMessage<'_>) -> Option<u32> {
    if message.header.message_type != NLMSG_ERROR {
        return None;
    }
    // Behind the error number: the request's own netlink and nfnetlink headers.
    let skip = HEADER_LENGTH
        .saturating_add(NFNETLINK_HEADER.len())
        .saturating_add(4);
    let request = message.payload.get(skip..)?;
    let line = attribute::attributes(request)
        .filter_map(Result::ok)
        .find(|item| item.kind() == LINENO)
        .and_then(|item| parse_u32_be(item.value()).ok());
    line.filter(|line| *line > 0)
}
