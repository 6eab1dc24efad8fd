//! The identity of a virtual server: protocol, address and port, or a firewall mark.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::{DecodeError, parse_u16, parse_u16_be, parse_u32};

use crate::address_family::Family;
use crate::attribute;

pub(crate) const SVC_AF: u16 = 1;
pub(crate) const SVC_PROTOCOL: u16 = 2;
pub(crate) const SVC_ADDR: u16 = 3;
pub(crate) const SVC_PORT: u16 = 4;
pub(crate) const SVC_FWMARK: u16 = 5;

/// Transport protocol of a virtual server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP (6)
    Tcp,
    /// UDP (17)
    Udp,
    /// SCTP (132)
    Sctp,
    /// Any other IP protocol number.
    Other(u8),
}

impl Protocol {
    /// The IP protocol number.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
            Self::Other(number) => number,
        }
    }
}

impl From<u8> for Protocol {
    fn from(number: u8) -> Self {
        match number {
            6 => Self::Tcp,
            17 => Self::Udp,
            132 => Self::Sctp,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp => f.write_str("tcp"),
            Self::Udp => f.write_str("udp"),
            Self::Sctp => f.write_str("sctp"),
            Self::Other(number) => write!(f, "protocol {number}"),
        }
    }
}

/// The identity of a virtual server. The kernel has at most one for each key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServiceKey {
    /// Matches packets to this address and port.
    Address {
        /// Transport protocol.
        protocol: Protocol,
        /// Virtual address.
        address: IpAddr,
        /// Virtual port in host byte order; 0 means all ports (persistent services only).
        port: u16,
    },
    /// Matches packets with a firewall mark.
    FirewallMark {
        /// The mark, not 0.
        mark: u32,
        /// Family of the packets.
        family: Family,
    },
}

impl ServiceKey {
    /// The key of packets to an address and port.
    #[must_use]
    pub fn address(protocol: Protocol, address: IpAddr, port: u16) -> Self {
        Self::Address {
            protocol,
            address,
            port,
        }
    }

    /// Family of the packets.
    #[must_use]
    pub fn family(&self) -> Family {
        match self {
            Self::Address { address, .. } => Family::of(*address),
            Self::FirewallMark { family, .. } => *family,
        }
    }

    pub(crate) fn put(&self, buffer: &mut Vec<u8>) {
        attribute::put(buffer, SVC_AF, &self.family().to_number().to_ne_bytes());
        match self {
            Self::Address {
                protocol,
                address,
                port,
            } => {
                let number = u16::from(protocol.number());
                attribute::put(buffer, SVC_PROTOCOL, &number.to_ne_bytes());
                attribute::put_address(buffer, SVC_ADDR, *address);
                attribute::put(buffer, SVC_PORT, &port.to_be_bytes());
            }
            Self::FirewallMark { mark, .. } => {
                attribute::put(buffer, SVC_FWMARK, &mark.to_ne_bytes());
            }
        }
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address {
                protocol,
                address,
                port,
            } => {
                write!(f, "{protocol} {}", SocketAddr::new(*address, *port))
            }
            Self::FirewallMark { mark, family } => write!(f, "fwmark {mark} {family}"),
        }
    }
}

/// The attributes of a key, collected one by one.
#[derive(Default)]
pub(crate) struct KeyParts {
    family: Option<Family>,
    protocol: Option<Protocol>,
    address: Option<Vec<u8>>,
    port: Option<u16>,
    mark: Option<u32>,
}

impl KeyParts {
    /// Takes the attribute if it belongs to the key.
    pub(crate) fn take(&mut self, kind: u16, value: &[u8]) -> Result<bool, DecodeError> {
        match kind {
            SVC_AF => self.family = Some(Family::from_number(parse_u16(value)?)?),
            SVC_PROTOCOL => {
                let number = u8::try_from(parse_u16(value)?)
                    .map_err(|_| DecodeError::from("service protocol is above 255"))?;
                self.protocol = Some(Protocol::from(number));
            }
            SVC_ADDR => self.address = Some(value.to_vec()),
            SVC_PORT => self.port = Some(parse_u16_be(value)?),
            SVC_FWMARK => self.mark = Some(parse_u32(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The key; an error if an attribute is missing.
    pub(crate) fn finish(self) -> Result<ServiceKey, DecodeError> {
        let family = self.family.ok_or("service without address family")?;
        if let Some(mark) = self.mark {
            return Ok(ServiceKey::FirewallMark { mark, family });
        }
        let address = self
            .address
            .ok_or("service without address and without firewall mark")?;
        Ok(ServiceKey::Address {
            protocol: self.protocol.ok_or("service without protocol")?,
            address: attribute::address(&address, family)?,
            port: self.port.ok_or("service without port")?,
        })
    }
}
