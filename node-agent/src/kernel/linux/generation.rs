//! The generation of nf_tables' rules: a number that every change of any of them moves on. As long as it
//! is what it was, nobody has to read rules again, which costs two processes each time.

use std::io;
use std::time::Duration;

use netlink_packet_core::{
    DecodeError, Emitable as _, NLM_F_REQUEST, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader,
    NlasIterator, Parseable as _, parse_u32_be,
};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use tracing::debug;

/// The kernel answers within the send call.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// `sizeof(struct nlmsghdr)` and `sizeof(struct nfgenmsg)`.
const HEADER_LENGTH: usize = 16;
const NFNETLINK_HEADER_LENGTH: usize = 4;
/// `NFNL_SUBSYS_NFTABLES`, the upper byte of the message type.
const SUBSYSTEM: u16 = 10 << 8;
const MSG_NEW_GENERATION: u16 = 15;
const MSG_GET_GENERATION: u16 = 16;
/// `NFTA_GEN_ID`
const GENERATION: u16 = 1;

/// Which rules of nf_tables a network namespace has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Generation(u32);

impl Generation {
    /// Of a namespace in which nobody has ever loaded any: it begins to count here (`nf_tables_init_net`).
    pub(super) const NOTHING: Self = Self(1);

    /// Of the namespace of the calling thread; `None` where the kernel does not say.
    pub(super) fn now() -> Option<Self> {
        let asked = ask();
        asked
            .map_err(|error| debug!(%error, "the generation of rules is not known"))
            .ok()
            .flatten()
    }
}

fn ask() -> io::Result<Option<Generation>> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    // Connected to the kernel: messages of other processes are not received at all.
    socket.connect(&SocketAddr::new(0, 0))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_LIMIT))?;
    socket.send(&request(), 0)?;
    let mut buffer = Vec::with_capacity(4096);
    socket.recv(&mut buffer, 0)?;
    answer(&buffer).map_err(io::Error::other)
}

fn request() -> [u8; HEADER_LENGTH + NFNETLINK_HEADER_LENGTH] {
    let mut bytes = [0; HEADER_LENGTH + NFNETLINK_HEADER_LENGTH];
    let mut header = NetlinkHeader::default();
    header.length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    header.message_type = SUBSYSTEM | MSG_GET_GENERATION;
    header.flags = NLM_F_REQUEST;
    header.sequence_number = 1;
    header.emit(&mut bytes);
    bytes
}

/// `None` for an error, as of a kernel without nf_tables.
fn answer(datagram: &[u8]) -> Result<Option<Generation>, DecodeError> {
    let buffer = NetlinkBuffer::new_checked(datagram)?;
    let header = NetlinkHeader::parse(&buffer)?;
    if header.message_type == NLMSG_ERROR {
        return Ok(None);
    }
    if header.message_type != SUBSYSTEM | MSG_NEW_GENERATION {
        let kind = header.message_type;
        return Err(DecodeError::from(format!("a message of type {kind}")));
    }
    let attributes = buffer.payload().get(NFNETLINK_HEADER_LENGTH..);
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
    use super::*;

    /// Linux 6.1 in the guest: `NFT_MSG_NEWGEN` with generation 7, the process id and name of who asks.
    fn told() -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LENGTH];
        bytes.extend([0, 0, 0, 7]);
        bytes.extend([8, 0, 1, 0, 0, 0, 0, 7]);
        bytes.extend([8, 0, 2, 0, 0, 0, 4, 210]);
        bytes.extend([8, 0, 3, 0, b'n', b'f', b't', 0]);
        let mut header = NetlinkHeader::default();
        header.length = u32::try_from(bytes.len()).unwrap();
        header.message_type = SUBSYSTEM | MSG_NEW_GENERATION;
        header.emit(&mut bytes);
        bytes
    }

    #[test]
    fn the_number_is_read_whatever_stands_beside_it() {
        assert_eq!(answer(&told()).unwrap(), Some(Generation(7)));
    }

    #[test]
    fn what_is_no_answer_is_not_taken_for_one() {
        let mut error = told();
        error[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        assert_eq!(answer(&error).unwrap(), None);
        let mut other = told();
        other[4..6].copy_from_slice(&(SUBSYSTEM | MSG_GET_GENERATION).to_ne_bytes());
        assert!(answer(&other).is_err());
        for length in 0..told().len() {
            let mut cut = told();
            cut.truncate(length);
            assert!(answer(&cut).is_err(), "{length}");
        }
    }

    #[test]
    fn the_question_is_a_whole_message() {
        let bytes = request();
        let buffer = NetlinkBuffer::new_checked(&bytes[..]).unwrap();
        assert_eq!(buffer.message_type(), 0x0a10);
        assert_eq!(buffer.payload(), [0; NFNETLINK_HEADER_LENGTH]);
    }
}
