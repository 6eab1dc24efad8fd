//! The headers of nf_tables messages: netlink's and nfnetlink's.

use netlink_blocking::message::{HEADER_BYTES, Header};
use netlink_packet_core::{DecodeError, NLMSG_ERROR, parse_u32};

pub use netlink_blocking::message::{RawMessage, error_code, messages};

use crate::attribute;
use crate::family::Family;

/// `NFNL_SUBSYS_NFTABLES`: upper byte of the message type.
const SUBSYSTEM: u8 = 10;

/// `sizeof(struct nfgenmsg)`: family, version, resource.
pub(crate) const NFNETLINK_HEADER_BYTES: usize = 4;

/// Types of the messages around a transaction.
#[cfg(feature = "socket")]
pub(crate) const BATCH_BEGIN: u16 = 0x10;
#[cfg(feature = "socket")]
pub(crate) const BATCH_END: u16 = 0x11;

/// The error message contains the header of the request only.
const NLM_F_CAPPED: u16 = 0x100;
/// The error message contains attributes.
const NLM_F_ACK_TLVS: u16 = 0x200;
/// Of these attributes: the place in the request that is wrong.
const ERROR_OFFSET: u16 = 2;

/// The header of a message, without its command, family and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// Sequence number, which the answers repeat. For a set that is added, also its number within the transaction.
    pub sequence: u32,
    /// Whether the kernel also acknowledges success (`NLM_F_ACK`). Errors are always reported.
    pub acknowledge: bool,
}

impl Envelope {
    /// Appends a message with this header to `buffer`. If `payload` fails, the buffer is unchanged.
    pub(crate) fn put<E>(
        self,
        buffer: &mut Vec<u8>,
        command: u8,
        family: Family,
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
            message.extend_from_slice(&[family.number(), 0, 0, 0]);
            payload(message)
        })
    }
}

/// Appends the begin or the end of a transaction.
#[cfg(feature = "socket")]
pub(crate) fn put_border(buffer: &mut Vec<u8>, message_type: u16, sequence: u32) {
    let header = Header {
        message_type,
        flags: 0,
        sequence,
        acknowledge: false,
    };
    let put: Result<(), std::convert::Infallible> = header.put(buffer, |message| {
        message.extend_from_slice(&[0, 0, 0, SUBSYSTEM]);
        Ok(())
    });
    match put {
        Ok(()) => {}
    }
}

/// The command and the family of a message, and the attributes after the nfnetlink header.
pub(crate) fn split<'a>(message: &RawMessage<'a>) -> Result<(u8, Family, &'a [u8]), DecodeError> {
    let [subsystem, command] = message.header.message_type.to_be_bytes();
    if subsystem != SUBSYSTEM {
        return Err(DecodeError::from(format!(
            "nfnetlink subsystem {subsystem} is not nf_tables"
        )));
    }
    let (header, attributes) = message
        .payload
        .split_first_chunk::<NFNETLINK_HEADER_BYTES>()
        .ok_or("message is shorter than the nfnetlink header")?;
    let [family, ..] = *header;
    Ok((command, Family::from_number(family), attributes))
}

/// The place in a request that the kernel refused, in bytes from the start of its netlink header: the attribute of the
/// element, for elements. `None` if the kernel (before 5.19) does not name a place.
#[must_use]
pub fn failed_offset(message: &RawMessage<'_>) -> Option<usize> {
    let flags = message.header.flags;
    let has_attributes = message.header.message_type == NLMSG_ERROR && flags & NLM_F_ACK_TLVS != 0;
    if !has_attributes {
        return None;
    }
    // The error number is followed by the request, or by its header.
    let request = message.payload.get(4..)?;
    let length = if flags & NLM_F_CAPPED != 0 {
        HEADER_BYTES
    } else {
        let length = u32::from_ne_bytes(*request.first_chunk::<4>()?);
        usize::try_from(length).ok()?.checked_next_multiple_of(4)?
    };
    attribute::attributes(request.get(length..)?)
        .filter_map(Result::ok)
        .find(|item| item.kind() == ERROR_OFFSET)
        .and_then(|item| parse_u32(item.value()).ok())
        .and_then(|offset| usize::try_from(offset).ok())
}
