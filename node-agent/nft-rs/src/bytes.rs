//! The bytes of keys and data, which are concatenations of components.
//!
//! Invariant of concatenations: each component is filled up to a multiple of four bytes, because a register has four
//! bytes. A single component has its own length only. [`Key`] writes both, and [`KeyReader`] reads them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Deref;

use smallvec::SmallVec;

/// Longest name of an interface, with its terminating zero byte.
const INTERFACE_NAME_BYTES: usize = 16;

/// A value in registers: a key, the data of a map, or the operand of an expression. Short values need no allocation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(SmallVec<[u8; 32]>);

impl Bytes {
    /// No bytes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A number of four bytes in host byte order, as marks and flags of conntrack are.
    #[must_use]
    pub fn host_u32(number: u32) -> Self {
        Self::from(number.to_ne_bytes().as_slice())
    }

    /// A port in network byte order, without padding: an operand of a comparison.
    #[must_use]
    pub fn port(port: u16) -> Self {
        Self::from(port.to_be_bytes().as_slice())
    }

    /// The name of an interface, filled with zero bytes: matches this interface only.
    #[must_use]
    pub fn interface_name(name: &str) -> Self {
        Key::new().interface_name(name).into()
    }

    /// The address of an interface or a host, 4 or 16 bytes.
    #[must_use]
    pub fn address(address: IpAddr) -> Self {
        Key::new().address(address).into()
    }

    /// The bytes as a slice.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }
}

impl<const N: usize> From<[u8; N]> for Bytes {
    fn from(bytes: [u8; N]) -> Self {
        Self::from(bytes.as_slice())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(SmallVec::from_vec(bytes))
    }
}

impl From<Key> for Bytes {
    fn from(key: Key) -> Self {
        Self(key.bytes)
    }
}

/// In hexadecimal, with a space after each four bytes.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        for (place, word) in self.0.chunks(4).enumerate() {
            if place > 0 {
                f.write_str(" ")?;
            }
            for byte in word {
                write!(f, "{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({self})")
    }
}

/// Builds a key or the data of a map, component by component.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Key {
    bytes: SmallVec<[u8; 32]>,
    is_concatenated: bool,
}

impl Key {
    /// A key without components.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an IPv4 address.
    #[must_use]
    pub fn ipv4(self, address: Ipv4Addr) -> Self {
        self.component(&address.octets())
    }

    /// Adds an IPv6 address.
    #[must_use]
    pub fn ipv6(self, address: Ipv6Addr) -> Self {
        self.component(&address.octets())
    }

    /// Adds an address of either family.
    #[must_use]
    pub fn address(self, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => self.ipv4(v4),
            IpAddr::V6(v6) => self.ipv6(v6),
        }
    }

    /// Adds the number of a transport protocol (TCP is 6).
    #[must_use]
    pub fn protocol(self, number: u8) -> Self {
        self.component(&[number])
    }

    /// Adds a port.
    #[must_use]
    pub fn port(self, port: u16) -> Self {
        self.component(&port.to_be_bytes())
    }

    /// Adds a mark, or another number in host byte order.
    #[must_use]
    pub fn mark(self, mark: u32) -> Self {
        self.component(&mark.to_ne_bytes())
    }

    /// Adds the name of an interface. A longer name than the kernel has is cut.
    #[must_use]
    pub fn interface_name(self, name: &str) -> Self {
        let mut bytes = [0; INTERFACE_NAME_BYTES];
        // The last byte stays zero.
        for (to, from) in bytes
            .iter_mut()
            .take(INTERFACE_NAME_BYTES.saturating_sub(1))
            .zip(name.bytes())
        {
            *to = from;
        }
        self.component(&bytes)
    }

    /// Adds a component as it is.
    #[must_use]
    pub fn component(mut self, component: &[u8]) -> Self {
        self.is_concatenated |= !self.bytes.is_empty();
        self.pad();
        self.bytes.extend_from_slice(component);
        if self.is_concatenated {
            self.pad();
        }
        self
    }

    fn pad(&mut self) {
        let padded = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(padded, 0);
    }
}

/// Reads the components of a key or of the data of a map in their order. Each method is `None` if the bytes end before.
#[derive(Debug, Clone)]
pub struct KeyReader<'a>(&'a [u8]);

impl<'a> KeyReader<'a> {
    /// Reads from the first component on.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Reads an IPv4 address.
    pub fn ipv4(&mut self) -> Option<Ipv4Addr> {
        self.array().map(|octets: [u8; 4]| octets.into())
    }

    /// Reads an IPv6 address.
    pub fn ipv6(&mut self) -> Option<Ipv6Addr> {
        self.array().map(|octets: [u8; 16]| octets.into())
    }

    /// Reads the number of a transport protocol.
    pub fn protocol(&mut self) -> Option<u8> {
        self.array().map(|[number]| number)
    }

    /// Reads a port.
    pub fn port(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads a mark, or another number in host byte order.
    pub fn mark(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    /// Reads the name of an interface up to its first zero byte.
    pub fn interface_name(&mut self) -> Option<&'a str> {
        let bytes = self.component(INTERFACE_NAME_BYTES)?;
        str::from_utf8(netlink_blocking::attribute::until_zero(bytes)).ok()
    }

    /// Reads a component of this length in bytes.
    pub fn component(&mut self, length: usize) -> Option<&'a [u8]> {
        let component = self.0.get(..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(component)
    }

    /// Whether all components were read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.component(N).and_then(|bytes| bytes.try_into().ok())
    }
}
