//! The headers of ipset messages: netlink's and nfnetlink's.

use netlink_blocking::message::{HEADER_BYTES, Header};
use netlink_packet_core::{DecodeError, NLMSG_ERROR, parse_u32_be};

pub use netlink_blocking::message::{RawMessage, error_code, messages};

use crate::attribute;
use crate::entry::LINENO;

/// `NFNL_SUBSYS_IPSET`: upper byte of the message type.
const SUBSYSTEM: u8 = 6;

/// `struct nfgenmsg`: family `AF_INET` as in the ipset program (the kernel uses the attribute instead), version 0,
/// resource 0.
const NFNETLINK_HEADER: [u8; 4] = [2, 0, 0, 0];

/// The header of a message, without its command and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// Sequence number, which the answers repeat.
    pub sequence: u32,
    /// Protocol version, 6 or 7.
    pub protocol: u8,
    /// Whether the kernel also acknowledges success (`NLM_F_ACK`). Errors are always reported.
    pub acknowledge: bool,
}

impl Envelope {
    /// Appends a message with this header to `buffer`. If `payload` fails, the buffer is unchanged.
    pub(crate) fn put<E>(
        self,
        buffer: &mut Vec<u8>,
        command: u8,
        flags: u16,
        payload: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let header = Header {
            message_type: u16::from_be_bytes([SUBSYSTEM, command]),
            flags,
            sequence: self.sequence,
            acknowledge: self.acknowledge,
        };
        header.put(buffer, |message| {
            message.extend_from_slice(&NFNETLINK_HEADER);
            payload(message)
        })
    }
}

/// The command of a message, and the attributes after the nfnetlink header.
pub(crate) fn split<'a>(message: &RawMessage<'a>) -> Result<(u8, &'a [u8]), DecodeError> {
    let [subsystem, command] = message.header.message_type.to_be_bytes();
    if subsystem != SUBSYSTEM {
        return Err(DecodeError::from(format!(
            "nfnetlink subsystem {subsystem} is not ipset"
        )));
    }
    let attributes = message
        .payload
        .get(NFNETLINK_HEADER.len()..)
        .ok_or("message is shorter than the nfnetlink header")?;
    Ok((command, attributes))
}

/// The number of the entry that failed in a message, starting at 1. The kernel returns the message with its line
/// number set to that of the entry. `None` if the error does not concern a single entry.
#[must_use]
pub fn failed_line(message: &RawMessage<'_>) -> Option<u32> {
    if message.header.message_type != NLMSG_ERROR {
        return None;
    }
    // The error number is followed by the request's netlink and nfnetlink headers.
    let skip = HEADER_BYTES
        .saturating_add(NFNETLINK_HEADER.len())
        .saturating_add(4);
    let request = message.payload.get(skip..)?;
    let line = attribute::attributes(request)
        .filter_map(Result::ok)
        .find(|item| item.kind() == LINENO)
        .and_then(|item| parse_u32_be(item.value()).ok());
    line.filter(|line| *line > 0)
}
