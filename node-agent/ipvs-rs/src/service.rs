//! A virtual server and its attributes (`IPVS_SVC_ATTR_*`).

use std::fmt;
use std::net::Ipv4Addr;

use netlink_packet_core::{DecodeError, DefaultNla, parse_u32};

use crate::address_family::Family;
use crate::attribute::{self, EncodeError};
use crate::key::{KeyParts, ServiceKey};
use crate::traffic::Traffic;

const SCHED_NAME: u16 = 6;
const FLAGS: u16 = 7;
const TIMEOUT: u16 = 8;
const NETMASK: u16 = 9;
const STATS: u16 = 10;
const PE_NAME: u16 = 11;
const STATS64: u16 = 12;

/// Flags of a virtual server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Flags(pub u32);

impl Flags {
    /// Clients stay with their real server for [`Service::timeout`] seconds.
    pub const PERSISTENT: Self = Self(0x1);
    /// Set by the kernel while the service is in its table.
    pub const HASHED: Self = Self(0x2);
    /// Each UDP packet is scheduled separately.
    pub const ONE_PACKET: Self = Self(0x4);
    /// First scheduler flag: `sh-fallback`, `mh-fallback`.
    pub const SCHED1: Self = Self(0x8);
    /// Second scheduler flag: `sh-port`, `mh-port`.
    pub const SCHED2: Self = Self(0x10);
    /// Third scheduler flag; no scheduler uses it yet.
    pub const SCHED3: Self = Self(0x20);

    /// No flag.
    #[must_use]
    pub fn empty() -> Self {
        Self(0)
    }

    /// Whether all flags of `other` are set.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags of both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These flags without those of `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl std::ops::BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

/// A virtual server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its identity.
    pub key: ServiceKey,
    /// Scheduler, for example `rr`; at most 15 bytes in the kernel. Empty if a dump contains a service during a
    /// change of its scheduler.
    pub scheduler: String,
    /// Flags. The kernel adds [`Flags::HASHED`] in its answers.
    pub flags: Flags,
    /// How long a persistent client stays with its real server, in seconds; 0 without persistence.
    pub timeout: u32,
    /// The number of leading address bits that persistent clients must share to count as one client: 0–32 for IPv4,
    /// 1–128 for IPv6. For a non-contiguous IPv4 mask, this is 32 and the mask is kept in `other`.
    pub netmask: u8,
    /// Persistence engine, for example `sip`.
    pub persistence_engine: Option<String>,
    /// Its traffic as read; 0 from kernels before 4.1. The kernel ignores it in requests.
    pub traffic: Traffic,
    /// Attributes that this crate does not know; they are written back unchanged.
    pub other: Vec<DefaultNla>,
}

impl Service {
    /// A service without persistence.
    #[must_use]
    pub fn new(key: ServiceKey, scheduler: impl Into<String>) -> Self {
        Self {
            key,
            scheduler: scheduler.into(),
            flags: Flags::empty(),
            timeout: 0,
            netmask: full_mask(key.family()),
            persistence_engine: None,
            traffic: Traffic::default(),
            other: Vec::new(),
        }
    }

    /// The same service whose clients stay with their real server for `seconds`.
    #[must_use]
    pub fn persistent(mut self, seconds: u32) -> Self {
        self.flags = self.flags | Flags::PERSISTENT;
        self.timeout = seconds;
        self
    }

    /// Whether writing `self` over `other` would change nothing. The flag that the kernel sets itself, traffic and
    /// kept attributes are ignored.
    #[must_use]
    pub fn same_settings(&self, other: &Self) -> bool {
        self.key == other.key
            && self.scheduler == other.scheduler
            && self.flags.without(Flags::HASHED) == other.flags.without(Flags::HASHED)
            && self.timeout == other.timeout
            && self.netmask == other.netmask
            && self.persistence_engine == other.persistence_engine
    }

    pub(crate) fn put(&self, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.key.put(buffer);
        attribute::put_text(buffer, SCHED_NAME, &self.scheduler)?;
        if let Some(engine) = &self.persistence_engine {
            attribute::put_text(buffer, PE_NAME, engine)?;
        }
        // The second word is the mask of flags to set. All bits are set, so a flag that is left out is cleared.
        let mut flags = [0xff; 8];
        let [a, b, c, d, ..] = &mut flags;
        [*a, *b, *c, *d] = self.flags.0.to_ne_bytes();
        attribute::put(buffer, FLAGS, &flags);
        attribute::put(buffer, TIMEOUT, &self.timeout.to_ne_bytes());
        let mask = mask_bytes(self.key.family(), self.netmask);
        attribute::put(buffer, NETMASK, &mask);
        // Only a service that was read has traffic, so this does not lengthen requests.
        if self.traffic != Traffic::default() {
            attribute::put_nested(buffer, STATS64, |buffer| {
                self.traffic.put(buffer);
                Ok(())
            })?;
        }
        attribute::put_other(buffer, &self.other)
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut key = KeyParts::default();
        let mut mask: Option<DefaultNla> = None;
        let mut mask_value = [0; 4];
        let mut scheduler = String::new();
        let mut flags = Flags::empty();
        let mut timeout = 0;
        let mut persistence_engine = None;
        let mut traffic = Traffic::default();
        let mut other = Vec::new();
        for item in attribute::attributes(bytes) {
            let item = item?;
            let value = item.value();
            if key.take(item.kind(), value)? {
                continue;
            }
            match item.kind() {
                SCHED_NAME => scheduler = attribute::text(value)?,
                FLAGS => flags = parse_flags(value)?,
                TIMEOUT => timeout = parse_u32(value)?,
                NETMASK => {
                    mask_value = *value
                        .first_chunk()
                        .ok_or("netmask is shorter than 4 bytes")?;
                    mask = Some(attribute::keep(&item)?);
                }
                PE_NAME => persistence_engine = Some(attribute::text(value)?),
                // The same counters in 32 bits.
                STATS => {}
                STATS64 => traffic = Traffic::parse(value)?,
                _ => other.push(attribute::keep(&item)?),
            }
        }
        let key = key.finish()?;
        let mut netmask = full_mask(key.family());
        if let Some(kept) = mask {
            match prefix_length(key.family(), mask_value) {
                Some(length) => netmask = length,
                // It is written back after this crate's netmask, and the kernel uses the last one.
                None => other.push(kept),
            }
        }
        Ok(Self {
            key,
            scheduler,
            flags,
            timeout,
            netmask,
            persistence_engine,
            traffic,
            other,
        })
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.scheduler)
    }
}

fn parse_flags(value: &[u8]) -> Result<Flags, DecodeError> {
    let (flags, mask) = value
        .split_first_chunk::<4>()
        .and_then(|(flags, rest)| rest.first_chunk::<4>().map(|mask| (flags, mask)))
        .ok_or("service flags are shorter than 8 bytes")?;
    Ok(Flags(
        u32::from_ne_bytes(*flags) & u32::from_ne_bytes(*mask),
    ))
}

fn full_mask(family: Family) -> u8 {
    match family {
        Family::Ipv4 => 32,
        Family::Ipv6 => 128,
    }
}

/// IPv4 has a mask in network byte order, IPv6 a prefix length in host byte order.
fn mask_bytes(family: Family, length: u8) -> [u8; 4] {
    match family {
        Family::Ipv4 => {
            let zeros = 32_u32.saturating_sub(u32::from(length));
            u32::MAX.checked_shl(zeros).unwrap_or(0).to_be_bytes()
        }
        Family::Ipv6 => u32::from(length).to_ne_bytes(),
    }
}

fn prefix_length(family: Family, value: [u8; 4]) -> Option<u8> {
    match family {
        Family::Ipv4 => {
            let mask = u32::from(Ipv4Addr::from(value));
            let contiguous = mask.leading_ones().saturating_add(mask.trailing_zeros()) >= 32;
            contiguous.then_some(u8::try_from(mask.leading_ones()).ok()?)
        }
        Family::Ipv6 => u8::try_from(u32::from_ne_bytes(value)).ok(),
    }
}
