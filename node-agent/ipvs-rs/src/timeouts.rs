//! The timeouts after which IPVS removes idle connections, one value per kind in a network namespace.

use netlink_packet_core::{DecodeError, parse_u32};

use crate::attribute;

const ATTR_TIMEOUT_TCP: u16 = 4;
const ATTR_TIMEOUT_TCP_FIN: u16 = 5;
const ATTR_TIMEOUT_UDP: u16 = 6;

/// Timeouts of connections in seconds. In a request, 0 keeps the kernel's value; answers contain no 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timeouts {
    /// The timeout of established TCP connections.
    pub tcp: u32,
    /// The timeout of TCP connections after a FIN.
    pub tcp_fin: u32,
    /// The timeout of UDP flows.
    pub udp: u32,
}

impl Timeouts {
    /// Writes all three, because the meaning of a missing one depends on the kernel version.
    pub(crate) fn put(&self, buffer: &mut Vec<u8>) {
        attribute::put(buffer, ATTR_TIMEOUT_TCP, &self.tcp.to_ne_bytes());
        attribute::put(buffer, ATTR_TIMEOUT_TCP_FIN, &self.tcp_fin.to_ne_bytes());
        attribute::put(buffer, ATTR_TIMEOUT_UDP, &self.udp.to_ne_bytes());
    }

    /// Reads the timeouts. A kernel built without TCP or UDP in its IPVS leaves out the corresponding ones.
    pub(crate) fn parse(attributes: &[u8]) -> Result<Self, DecodeError> {
        let mut timeouts = Self::default();
        for item in attribute::attributes(attributes) {
            let item = item?;
            match item.kind() {
                ATTR_TIMEOUT_TCP => timeouts.tcp = parse_u32(item.value())?,
                ATTR_TIMEOUT_TCP_FIN => timeouts.tcp_fin = parse_u32(item.value())?,
                ATTR_TIMEOUT_UDP => timeouts.udp = parse_u32(item.value())?,
                _ => {}
            }
        }
        Ok(timeouts)
    }
}
