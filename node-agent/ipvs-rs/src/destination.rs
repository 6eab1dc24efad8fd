//! A real server of a virtual server and its attributes (`IPVS_DEST_ATTR_*`).

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::{DecodeError, DefaultNla, parse_u8, parse_u16, parse_u16_be, parse_u32};

use crate::address_family::Family;
use crate::attribute::{self, EncodeError};

const ADDR: u16 = 1;
const PORT: u16 = 2;
const FWD_METHOD: u16 = 3;
const WEIGHT: u16 = 4;
const U_THRESH: u16 = 5;
const L_THRESH: u16 = 6;
const ACTIVE_CONNS: u16 = 7;
const INACT_CONNS: u16 = 8;
const PERSIST_CONNS: u16 = 9;
const STATS: u16 = 10;
const ADDR_FAMILY: u16 = 11;
const STATS64: u16 = 12;
const TUN_TYPE: u16 = 13;
const TUN_PORT: u16 = 14;
const TUN_FLAGS: u16 = 15;

/// How packets reach a real server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Forwarding {
    /// Address translation.
    Masquerade,
    /// The real server is this host.
    Local,
    /// IP in IP.
    Tunnel,
    /// Rewritten link-layer address.
    DirectRouting,
    /// Directly to the destination (cache bypass).
    Bypass,
    /// A method that this crate does not know.
    Other(u32),
}

impl Forwarding {
    fn number(self) -> u32 {
        match self {
            Self::Masquerade => 0,
            Self::Local => 1,
            Self::Tunnel => 2,
            Self::DirectRouting => 3,
            Self::Bypass => 4,
            Self::Other(number) => number,
        }
    }

    fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Masquerade,
            1 => Self::Local,
            2 => Self::Tunnel,
            3 => Self::DirectRouting,
            4 => Self::Bypass,
            other => Self::Other(other),
        }
    }
}

/// The encapsulation for a real server reached by [`Forwarding::Tunnel`]; all 0 is IP in IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tunnel {
    /// 0 for IP in IP, 1 for generic UDP encapsulation, 2 for GRE.
    pub kind: u8,
    /// UDP port of generic UDP encapsulation, in host byte order.
    pub port: u16,
    /// Checksum flags (`IP_VS_TUNNEL_ENCAP_FLAG_*`).
    pub flags: u16,
}

impl Tunnel {
    fn put(self, buffer: &mut Vec<u8>) {
        attribute::put(buffer, TUN_TYPE, &[self.kind]);
        attribute::put(buffer, TUN_PORT, &self.port.to_be_bytes());
        attribute::put(buffer, TUN_FLAGS, &self.flags.to_ne_bytes());
    }
}

/// The identity of a real server within its virtual server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DestinationKey {
    /// Address of the real server.
    pub address: IpAddr,
    /// Port of the real server, in host byte order.
    pub port: u16,
}

impl DestinationKey {
    pub(crate) fn put(&self, buffer: &mut Vec<u8>) {
        let family = Family::of(self.address).to_number();
        attribute::put_address(buffer, ADDR, self.address);
        attribute::put(buffer, PORT, &self.port.to_be_bytes());
        attribute::put(buffer, ADDR_FAMILY, &family.to_ne_bytes());
    }
}

impl fmt::Display for DestinationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, self.port).fmt(f)
    }
}

/// A real server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Its address. Its family may differ from that of the service only with tunnels.
    pub address: IpAddr,
    /// Its port, in host byte order.
    pub port: u16,
    /// How packets reach it.
    pub forwarding: Forwarding,
    /// Share of new connections; with 0 it takes no new connections and keeps existing ones.
    pub weight: u32,
    /// Number of connections at which it stops taking new ones; 0 for no limit.
    pub upper_threshold: u32,
    /// Number of connections at which it takes new ones again; 0 for three quarters of the upper threshold.
    pub lower_threshold: u32,
    /// The encapsulation, if packets are tunnelled.
    pub tunnel: Tunnel,
    /// Connections in an active state; read only.
    pub active_connections: u32,
    /// Connections in an inactive state; read only.
    pub inactive_connections: u32,
    /// Persistence templates; read only.
    pub persistent_connections: u32,
    /// Attributes that this crate does not know; they are written back unchanged.
    pub other: Vec<DefaultNla>,
}

impl Destination {
    /// A real server reached by address translation, without thresholds.
    #[must_use]
    pub fn masquerade(address: IpAddr, port: u16, weight: u32) -> Self {
        Self {
            address,
            port,
            forwarding: Forwarding::Masquerade,
            weight,
            upper_threshold: 0,
            lower_threshold: 0,
            tunnel: Tunnel::default(),
            active_connections: 0,
            inactive_connections: 0,
            persistent_connections: 0,
            other: Vec::new(),
        }
    }

    /// Its identity within its service.
    #[must_use]
    pub fn key(&self) -> DestinationKey {
        DestinationKey {
            address: self.address,
            port: self.port,
        }
    }

    /// Whether writing `self` over `other` would change nothing. Connection counts and kept attributes are ignored.
    #[must_use]
    pub fn same_settings(&self, other: &Self) -> bool {
        self.key() == other.key()
            && self.forwarding == other.forwarding
            && self.weight == other.weight
            && self.upper_threshold == other.upper_threshold
            && self.lower_threshold == other.lower_threshold
            && self.tunnel == other.tunnel
    }

    fn put_forwarding(&self, buffer: &mut Vec<u8>) {
        attribute::put(buffer, FWD_METHOD, &self.forwarding.number().to_ne_bytes());
        attribute::put(buffer, WEIGHT, &self.weight.to_ne_bytes());
    }

    fn put_thresholds(&self, buffer: &mut Vec<u8>) {
        attribute::put(buffer, U_THRESH, &self.upper_threshold.to_ne_bytes());
        attribute::put(buffer, L_THRESH, &self.lower_threshold.to_ne_bytes());
    }

    /// Writes the settings, for a request. Kernels before 5.3 do not know tunnel types, which are rarely used, so
    /// tunnel attributes are written only if they differ from the default.
    pub(crate) fn put(&self, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.key().put(buffer);
        self.put_forwarding(buffer);
        if self.tunnel != Tunnel::default() {
            self.tunnel.put(buffer);
        }
        self.put_thresholds(buffer);
        attribute::put_other(buffer, &self.other)
    }

    /// Writes a reply like the kernel: with connection counts, in the kernel's order.
    pub(crate) fn put_shown(&self, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        let family = Family::of(self.address).to_number();
        attribute::put_address(buffer, ADDR, self.address);
        attribute::put(buffer, PORT, &self.port.to_be_bytes());
        self.put_forwarding(buffer);
        self.tunnel.put(buffer);
        self.put_thresholds(buffer);
        attribute::put(buffer, ACTIVE_CONNS, &self.active_connections.to_ne_bytes());
        attribute::put(
            buffer,
            INACT_CONNS,
            &self.inactive_connections.to_ne_bytes(),
        );
        attribute::put(
            buffer,
            PERSIST_CONNS,
            &self.persistent_connections.to_ne_bytes(),
        );
        attribute::put(buffer, ADDR_FAMILY, &family.to_ne_bytes());
        attribute::put_other(buffer, &self.other)
    }

    /// Reads a real server. `service_family` is used if the message has no family, as with kernels before 3.18 and
    /// old tools.
    pub(crate) fn parse(bytes: &[u8], service_family: Option<Family>) -> Result<Self, DecodeError> {
        let mut raw_address: Option<Vec<u8>> = None;
        let mut family = None;
        let mut port = None;
        let mut parsed = Self::masquerade(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0, 0);
        for item in attribute::attributes(bytes) {
            let item = item?;
            let value = item.value();
            match item.kind() {
                ADDR => raw_address = Some(value.to_vec()),
                PORT => port = Some(parse_u16_be(value)?),
                FWD_METHOD => parsed.forwarding = Forwarding::from_number(parse_u32(value)?),
                WEIGHT => parsed.weight = parse_u32(value)?,
                U_THRESH => parsed.upper_threshold = parse_u32(value)?,
                L_THRESH => parsed.lower_threshold = parse_u32(value)?,
                ACTIVE_CONNS => parsed.active_connections = parse_u32(value)?,
                INACT_CONNS => parsed.inactive_connections = parse_u32(value)?,
                PERSIST_CONNS => parsed.persistent_connections = parse_u32(value)?,
                ADDR_FAMILY => family = Some(Family::from_number(parse_u16(value)?)?),
                TUN_TYPE => parsed.tunnel.kind = parse_u8(value)?,
                TUN_PORT => parsed.tunnel.port = parse_u16_be(value)?,
                TUN_FLAGS => parsed.tunnel.flags = parse_u16(value)?,
                STATS | STATS64 => {}
                _ => parsed.other.push(attribute::keep(&item)?),
            }
        }
        let family = family
            .or(service_family)
            .ok_or("real server without address family")?;
        let raw_address = raw_address.ok_or("real server without address")?;
        parsed.address = attribute::address(&raw_address, family)?;
        parsed.port = port.ok_or("real server without port")?;
        Ok(parsed)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} weight {}", self.key(), self.weight)
    }
}
