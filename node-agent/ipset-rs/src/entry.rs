//! Entries of sets and their attributes (`IPSET_ATTR_IP`, `_PORT`, …).

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{DecodeError, parse_u8, parse_u16_be};

use crate::attribute::{self, EncodeError};
use crate::kind::{Family, Protocol, SetType};

const IP: u16 = 1;
const CIDR: u16 = 3;
pub(crate) const PORT: u16 = 4;
pub(crate) const PORT_TO: u16 = 5;
const PROTO: u16 = 7;
pub(crate) const LINENO: u16 = 9;
const IP2: u16 = 20;
const CIDR2: u16 = 21;

/// Attributes that do not change which packets an entry matches: time left, line number, counters, comment.
const IGNORED_ATTRIBUTES: [u16; 5] = [6, LINENO, 24, 25, 26];

/// An entry of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Entry {
    /// An entry of hash:ip,port.
    IpPort {
        /// Address.
        address: IpAddr,
        /// Transport protocol.
        protocol: Protocol,
        /// Port, in host byte order.
        port: u16,
    },
    /// An entry of hash:net. Bits after the prefix are ignored, and are 0 in entries that were read.
    Net(IpNet),
    /// An entry of hash:ip,port,ip.
    IpPortIp {
        /// First address.
        address: IpAddr,
        /// Transport protocol.
        protocol: Protocol,
        /// Port, in host byte order.
        port: u16,
        /// Second address.
        source: IpAddr,
    },
    /// An entry of hash:ip,port,net. The range must not be /0, and is treated as in [`Entry::Net`].
    IpPortNet {
        /// Address.
        address: IpAddr,
        /// Transport protocol.
        protocol: Protocol,
        /// Port, in host byte order.
        port: u16,
        /// Range of second addresses.
        net: IpNet,
    },
    /// An entry of bitmap:port, in host byte order.
    Port(u16),
}

impl Entry {
    /// The set type of the entry.
    #[must_use]
    pub fn set_type(&self) -> SetType {
        match self {
            Self::IpPort { .. } => SetType::HashIpPort,
            Self::Net(_) => SetType::HashNet,
            Self::IpPortIp { .. } => SetType::HashIpPortIp,
            Self::IpPortNet { .. } => SetType::HashIpPortNet,
            Self::Port(_) => SetType::BitmapPort,
        }
    }

    /// An entry of hash:net without the bits after the prefix, in the form in which it is read back.
    #[must_use]
    pub fn net(net: IpNet) -> Self {
        Self::Net(net.trunc())
    }

    /// The family of its (first) address; `None` if it has none.
    #[must_use]
    pub fn family(&self) -> Option<Family> {
        match self {
            Self::IpPort { address, .. }
            | Self::IpPortIp { address, .. }
            | Self::IpPortNet { address, .. } => Some(Family::of(*address)),
            Self::Net(net) => Some(Family::of(net.addr())),
            Self::Port(_) => None,
        }
    }

    pub(crate) fn put(&self, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::IpPort {
                address,
                protocol,
                port,
            } => put_ip_port(buffer, *address, *protocol, *port),
            Self::Net(net) => {
                attribute::put_address(buffer, IP, net.network())?;
                attribute::put(buffer, CIDR, &[net.prefix_len()])
            }
            Self::IpPortIp {
                address,
                protocol,
                port,
                source,
            } => {
                put_ip_port(buffer, *address, *protocol, *port)?;
                attribute::put_address(buffer, IP2, *source)
            }
            Self::IpPortNet {
                address,
                protocol,
                port,
                net,
            } => {
                put_ip_port(buffer, *address, *protocol, *port)?;
                attribute::put_address(buffer, IP2, net.network())?;
                attribute::put(buffer, CIDR2, &[net.prefix_len()])
            }
            Self::Port(port) => attribute::put_u16(buffer, PORT, *port),
        }
    }

    /// Reads the attributes of an entry. They do not contain the type: an address with a port is hash:ip,port, a port
    /// alone is bitmap:port, and so on. `Ok(None)` if the entry has a part that this crate does not support.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Self>, DecodeError> {
        let mut parts = Parts::default();
        for item in attribute::attributes(bytes) {
            let item = item?;
            let value = item.value();
            match item.kind() {
                IP => parts.address = Some(attribute::address(value)?),
                CIDR => parts.prefix = Some(parse_u8(value)?),
                PORT => parts.port = Some(parse_u16_be(value)?),
                PROTO => parts.protocol = Some(parse_u8(value)?),
                IP2 => parts.source = Some(attribute::address(value)?),
                CIDR2 => parts.source_prefix = Some(parse_u8(value)?),
                kind if IGNORED_ATTRIBUTES.contains(&kind) => {}
                _ => return Ok(None),
            }
        }
        Ok(parts.finish())
    }
}

fn put_ip_port(
    buffer: &mut Vec<u8>,
    address: IpAddr,
    protocol: Protocol,
    port: u16,
) -> Result<(), EncodeError> {
    attribute::put_address(buffer, IP, address)?;
    attribute::put_u16(buffer, PORT, port)?;
    attribute::put(buffer, PROTO, &[protocol.number()])
}

#[derive(Default)]
struct Parts {
    address: Option<IpAddr>,
    prefix: Option<u8>,
    protocol: Option<u8>,
    port: Option<u16>,
    source: Option<IpAddr>,
    source_prefix: Option<u8>,
}

impl Parts {
    fn finish(self) -> Option<Entry> {
        let Some(address) = self.address else {
            return match (self.prefix, self.protocol, self.source, self.source_prefix) {
                (None, None, None, None) => self.port.map(Entry::Port),
                _ => None,
            };
        };
        if let Some(prefix) = self.source_prefix {
            let net = IpNet::new(self.source?, prefix).ok()?.trunc();
            return self.prefix.is_none().then_some(Entry::IpPortNet {
                address,
                protocol: Protocol::from_number(self.protocol?)?,
                port: self.port?,
                net,
            });
        }
        match (self.prefix, self.protocol, self.port, self.source) {
            (Some(prefix), None, None, None) => IpNet::new(address, prefix)
                .ok()
                .map(|net| Entry::Net(net.trunc())),
            (None, Some(protocol), Some(port), None) => Some(Entry::IpPort {
                address,
                protocol: Protocol::from_number(protocol)?,
                port,
            }),
            (None, Some(protocol), Some(port), Some(source)) => Some(Entry::IpPortIp {
                address,
                protocol: Protocol::from_number(protocol)?,
                port,
                source,
            }),
            _ => None,
        }
    }
}
