//! The generation of the nf_tables rules: a number that every change of a rule increases. While it is unchanged,
//! rules need not be read again, which saves two processes each time.

use std::convert::Infallible;

use netlink_blocking::message::{Header, messages};
use netlink_blocking::{Channel, Error, Outgoing, Received};
use netlink_packet_core::{DecodeError, NLMSG_ERROR, NlasIterator, parse_u32_be};
use netlink_sys::protocols::NETLINK_NETFILTER;
use tracing::debug;

/// `sizeof(struct nfgenmsg)`.
const NFNETLINK_HEADER_LENGTH: usize = 4;
/// `NFNL_SUBSYS_NFTABLES`, the upper byte of the message type.
const SUBSYSTEM: u16 = 10 << 8;
const MSG_NEW_GENERATION: u16 = 15;
const MSG_GET_GENERATION: u16 = 16;
/// `NFTA_GEN_ID`
const GENERATION: u16 = 1;

/// The generation of the nf_tables rules of a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Generation(u32);

impl Generation {
    /// The initial generation of a namespace, in which no rules were ever loaded (`nf_tables_init_net`).
    pub(super) const NOTHING: Self = Self(1);

    /// The generation in the namespace of the calling thread; `None` if the kernel does not report it.
    pub(super) fn now() -> Option<Self> {
        let asked = ask();
        asked
            .map_err(|error| debug!(%error, "cannot read the generation of nf_tables rules"))
            .ok()
            .flatten()
    }
}

fn ask() -> Result<Option<Generation>, Error> {
    let mut channel = Channel::open(NETLINK_NETFILTER)?;
    channel.send(&Outgoing {
        bytes: &request(),
        messages: 1,
        writes: false,
    })?;
    match channel.receive(true)? {
        Received::Datagram(datagram) => Ok(answer(datagram)?),
        Received::Overrun | Received::Nothing => Err(Error::AnswerLost),
    }
}

fn request() -> Vec<u8> {
    let header = Header {
        message_type: SUBSYSTEM | MSG_GET_GENERATION,
        flags: 0,
        sequence: 1,
        acknowledge: false,
    };
    let mut bytes = Vec::new();
    let Ok(()) = header.put(&mut bytes, |payload| {
        payload.extend_from_slice(&[0; NFNETLINK_HEADER_LENGTH]);
        Ok::<_, Infallible>(())
    });
    bytes
}

/// Decodes a reply; `None` for an error, as from a kernel without nf_tables.
fn answer(datagram: &[u8]) -> Result<Option<Generation>, DecodeError> {
    let message = messages(datagram).next().ok_or("an empty answer")??;
    let header = message.header;
    if header.message_type == NLMSG_ERROR {
        return Ok(None);
    }
    if header.message_type != SUBSYSTEM | MSG_NEW_GENERATION {
        let kind = header.message_type;
        return Err(DecodeError::from(format!("a message of type {kind}")));
    }
    let attributes = message.payload.get(NFNETLINK_HEADER_LENGTH..);
    for attribute in NlasIterator::new(attributes.unwrap_or_default()) {
        let attribute = attribute?;
        if attribute.kind() == GENERATION {
            return Ok(Some(Generation(parse_u32_be(attribute.value())?)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use netlink_blocking::testing::message;
    use netlink_packet_core::NetlinkBuffer;

    use super::*;

    /// Captured from Linux 6.1: `NFT_MSG_NEWGEN` with generation 7, and the process id and name of the client.
    fn reply() -> Vec<u8> {
        let payload = [
            [0, 0, 0, 7].as_slice(),
            &[8, 0, 1, 0, 0, 0, 0, 7],
            &[8, 0, 2, 0, 0, 0, 4, 210],
            &[8, 0, 3, 0, b'n', b'f', b't', 0],
        ];
        message(SUBSYSTEM | MSG_NEW_GENERATION, 0, 1, &payload.concat())
    }

    #[test]
    fn the_generation_is_read_and_other_attributes_are_ignored() {
        assert_eq!(answer(&reply()).unwrap(), Some(Generation(7)));
    }

    #[test]
    fn errors_and_other_messages_are_not_taken_for_a_reply() {
        let mut error = reply();
        error[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        assert_eq!(answer(&error).unwrap(), None);
        let mut other = reply();
        other[4..6].copy_from_slice(&(SUBSYSTEM | MSG_GET_GENERATION).to_ne_bytes());
        assert!(answer(&other).is_err());
        for length in 0..reply().len() {
            let mut cut = reply();
            cut.truncate(length);
            assert!(answer(&cut).is_err(), "{length}");
        }
    }

    #[test]
    fn the_request_is_a_complete_message() {
        let bytes = request();
        let buffer = NetlinkBuffer::new_checked(&bytes[..]).unwrap();
        assert_eq!(buffer.message_type(), 0x0a10);
        assert_eq!(buffer.payload(), [0; NFNETLINK_HEADER_LENGTH]);
    }
}
