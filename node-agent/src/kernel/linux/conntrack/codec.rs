//! Messages to and from connection tracking (`ctnetlink`): a dump of the flows of a protocol and family, and the
//! deletion of exactly one flow. No I/O.
//!
//! Invariant: a deletion always contains the tuple of the flow. Without it the kernel would delete all entries, so no
//! request type allows it to be missing.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use netlink_blocking::attribute::put;
use netlink_blocking::message::{Header, RawMessage};
use netlink_packet_core::{
    DecodeError, NLA_F_NESTED, NLM_F_DUMP, NlaBuffer, NlasIterator, parse_u8, parse_u16_be,
    parse_u32_be,
};
use portolan_plan::{Family, Protocol};
use portolan_reconcile::Flow;

/// `sizeof(struct nfgenmsg)`.
const NFNETLINK_HEADER_LENGTH: usize = 4;
/// `NFNL_SUBSYS_CTNETLINK`: upper byte of the message type.
pub(super) const SUBSYSTEM: u8 = 1;

pub(super) const MSG_NEW: u8 = 0;
const MSG_GET: u8 = 1;
const MSG_DELETE: u8 = 2;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
const IPPROTO_SCTP: u8 = 132;

// enum ctattr_type
pub(super) const TUPLE_ORIGINAL: u16 = 1;
pub(super) const TUPLE_REPLY: u16 = 2;
const STATUS: u16 = 3;
pub(super) const ID: u16 = 12;
const ZONE: u16 = 18;
const FILTER: u16 = 25;
// enum ctattr_tuple
const TUPLE_ADDRESSES: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
const TUPLE_ZONE: u16 = 3;
// enum ctattr_ip
const IPV4_SOURCE: u16 = 1;
const IPV4_DESTINATION: u16 = 2;
const IPV6_SOURCE: u16 = 3;
const IPV6_DESTINATION: u16 = 4;
// enum ctattr_l4proto
const PROTOCOL_NUMBER: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;
// enum ctattr_filter, and its flag for the number of the protocol
const FILTER_ORIGINAL: u16 = 1;
const FILTER_BY_PROTOCOL: u32 = 1 << 3;

/// `IPS_DST_NAT`
const TRANSLATED: u32 = 1 << 5;

/// A request to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request<'a> {
    /// List all flows of a protocol and family. Kernels before 5.8 ignore the protocol and list all flows.
    Dump(Protocol, Family),
    /// Delete this flow of a protocol, if it still exists.
    Delete(Protocol, &'a Flow),
}

impl Request<'_> {
    /// Appends the complete netlink message.
    pub(super) fn encode(self, sequence: u32, acknowledge: bool, buffer: &mut Vec<u8>) {
        let (command, family, flags) = match self {
            Self::Dump(_, family) => (MSG_GET, family, NLM_F_DUMP),
            Self::Delete(_, flow) => (MSG_DELETE, flow.family(), 0),
        };
        let family = match family {
            Family::Ipv4 => AF_INET,
            Family::Ipv6 => AF_INET6,
        };
        let header = Header {
            message_type: u16::from_be_bytes([SUBSYSTEM, command]),
            flags,
            sequence,
            acknowledge,
        };
        let Ok(()) = header.put(buffer, |payload| {
            payload.extend_from_slice(&[family, 0, 0, 0]);
            match self {
                Self::Dump(protocol, _) => put_filter(payload, protocol),
                Self::Delete(protocol, flow) => put_flow(payload, protocol, flow),
            }
            Ok::<_, Infallible>(())
        });
    }
}

fn put_filter(buffer: &mut Vec<u8>, of: Protocol) {
    put_nested(buffer, TUPLE_ORIGINAL, |tuple| {
        put_nested(tuple, TUPLE_PROTOCOL, |protocol| {
            put(protocol, PROTOCOL_NUMBER, &[number(of)]);
        });
    });
    put_nested(buffer, FILTER, |filter| {
        put(filter, FILTER_ORIGINAL, &FILTER_BY_PROTOCOL.to_ne_bytes());
    });
}

fn put_flow(buffer: &mut Vec<u8>, protocol: Protocol, flow: &Flow) {
    put_tuple(
        buffer,
        TUPLE_ORIGINAL,
        protocol,
        [flow.source, flow.destination],
    );
    if flow.zone != 0 {
        put(buffer, ZONE, &flow.zone.to_be_bytes());
    }
    if let Some(id) = flow.id {
        put(buffer, ID, &id.to_be_bytes());
    }
}

pub(super) fn put_tuple(
    buffer: &mut Vec<u8>,
    kind: u16,
    of: Protocol,
    [source, destination]: [SocketAddr; 2],
) {
    put_nested(buffer, kind, |tuple| {
        put_nested(tuple, TUPLE_ADDRESSES, |addresses| {
            put_address(addresses, IPV4_SOURCE, IPV6_SOURCE, source.ip());
            put_address(
                addresses,
                IPV4_DESTINATION,
                IPV6_DESTINATION,
                destination.ip(),
            );
        });
        put_nested(tuple, TUPLE_PROTOCOL, |protocol| {
            put(protocol, PROTOCOL_NUMBER, &[number(of)]);
            put(protocol, SOURCE_PORT, &source.port().to_be_bytes());
            put(
                protocol,
                DESTINATION_PORT,
                &destination.port().to_be_bytes(),
            );
        });
    });
}

fn put_address(buffer: &mut Vec<u8>, kind_v4: u16, kind_v6: u16, address: IpAddr) {
    match address {
        IpAddr::V4(address) => put(buffer, kind_v4, &address.octets()),
        IpAddr::V6(address) => put(buffer, kind_v6, &address.octets()),
    }
}

fn put_nested(buffer: &mut Vec<u8>, kind: u16, content: impl FnOnce(&mut Vec<u8>)) {
    let start = buffer.len();
    put(buffer, kind | NLA_F_NESTED, &[]);
    let inner = buffer.len();
    content(buffer);
    let length = attribute_length(buffer.len().saturating_sub(inner));
    let place = buffer
        .get_mut(start..)
        .and_then(<[u8]>::first_chunk_mut::<2>);
    if let Some(place) = place {
        *place = length.to_ne_bytes();
    }
}

fn attribute_length(value: usize) -> u16 {
    u16::try_from(value.saturating_add(4)).unwrap_or(u16::MAX)
}

/// The flow in a message with its protocol; `None` for flows of protocols without ports and for other messages.
///
/// # Errors
/// If an attribute is truncated.
pub(super) fn flow_of(message: &RawMessage<'_>) -> Result<Option<(Protocol, Flow)>, DecodeError> {
    if message.header.message_type != u16::from_be_bytes([SUBSYSTEM, MSG_NEW]) {
        return Ok(None);
    }
    let attributes = message.payload.get(NFNETLINK_HEADER_LENGTH..);
    let attributes = attributes.ok_or("message is shorter than the nfnetlink header")?;
    let (mut original, mut reply) = (Tuple::default(), Tuple::default());
    let (mut zone, mut id, mut status) = (None, None, 0);
    for attribute in NlasIterator::new(attributes) {
        let attribute = attribute?;
        match attribute.kind() {
            TUPLE_ORIGINAL => original = Tuple::parse(attribute.value())?,
            TUPLE_REPLY => reply = Tuple::parse(attribute.value())?,
            ZONE => zone = Some(parse_u16_be(attribute.value())?),
            ID => id = Some(parse_u32_be(attribute.value())?),
            STATUS => status = parse_u32_be(attribute.value())?,
            _ => {}
        }
    }
    let Some(protocol) = original.protocol.and_then(protocol) else {
        return Ok(None);
    };
    let whole = || {
        let flow = Flow {
            source: original.source()?,
            destination: original.destination()?,
            reply_source: reply.source()?,
            // A zone may apply to one direction only, and is then part of its tuple.
            zone: zone.or(original.zone).unwrap_or(0),
            id,
            by_rules: status & TRANSLATED != 0,
        };
        Some((protocol, flow))
    };
    Ok(whole())
}

fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => IPPROTO_TCP,
        Protocol::Udp => IPPROTO_UDP,
        Protocol::Sctp => IPPROTO_SCTP,
    }
}

fn protocol(number: u8) -> Option<Protocol> {
    match number {
        IPPROTO_TCP => Some(Protocol::Tcp),
        IPPROTO_UDP => Some(Protocol::Udp),
        IPPROTO_SCTP => Some(Protocol::Sctp),
        _ => None,
    }
}

/// One direction of a flow.
#[derive(Debug, Default)]
struct Tuple {
    addresses: [Option<IpAddr>; 2],
    ports: [Option<u16>; 2],
    protocol: Option<u8>,
    zone: Option<u16>,
}

impl Tuple {
    fn source(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.addresses[0]?, self.ports[0]?))
    }

    fn destination(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.addresses[1]?, self.ports[1]?))
    }

    fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut tuple = Self::default();
        for attribute in NlasIterator::new(bytes) {
            let attribute = attribute?;
            match attribute.kind() {
                TUPLE_ADDRESSES => tuple.addresses(attribute.value())?,
                TUPLE_PROTOCOL => tuple.protocol(attribute.value())?,
                TUPLE_ZONE => tuple.zone = Some(parse_u16_be(attribute.value())?),
                _ => {}
            }
        }
        Ok(tuple)
    }

    fn addresses(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        for attribute in NlasIterator::new(bytes) {
            let attribute = attribute?;
            match attribute.kind() {
                IPV4_SOURCE | IPV6_SOURCE => self.addresses[0] = Some(address(&attribute)?),
                IPV4_DESTINATION | IPV6_DESTINATION => {
                    self.addresses[1] = Some(address(&attribute)?);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn protocol(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        for attribute in NlasIterator::new(bytes) {
            let attribute = attribute?;
            let value = attribute.value();
            match attribute.kind() {
                PROTOCOL_NUMBER => self.protocol = Some(parse_u8(value)?),
                SOURCE_PORT => self.ports[0] = Some(parse_u16_be(value)?),
                DESTINATION_PORT => self.ports[1] = Some(parse_u16_be(value)?),
                _ => {}
            }
        }
        Ok(())
    }
}

fn address(attribute: &NlaBuffer<&[u8]>) -> Result<IpAddr, DecodeError> {
    let bytes = attribute.value();
    if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
        return Ok(Ipv4Addr::from(octets).into());
    }
    let octets = <[u8; 16]>::try_from(bytes);
    let octets = octets.map_err(|_| DecodeError::invalid_ip_address(bytes.len()))?;
    Ok(Ipv6Addr::from(octets).into())
}

#[cfg(test)]
#[path = "captures.rs"]
mod tests;
