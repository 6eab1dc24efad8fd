//! The traffic of a virtual server (`IPVS_SVC_ATTR_STATS64`, `IPVS_STATS_ATTR_*`).

use netlink_packet_core::DecodeError;

use crate::attribute;

const CONNECTIONS: u16 = 1;
const PACKETS_IN: u16 = 2;
const PACKETS_OUT: u16 = 3;
const BYTES_IN: u16 = 4;
const BYTES_OUT: u16 = 5;

/// The traffic of a virtual server since it was created or its counters were reset. "In" is from clients to real
/// servers, "out" the reverse direction as far as it passes this host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of connections scheduled.
    pub connections: u64,
    /// Number of packets in.
    pub packets_in: u64,
    /// Number of packets out.
    pub packets_out: u64,
    /// Number of bytes in, including network-layer headers.
    pub bytes_in: u64,
    /// Number of bytes out, including network-layer headers.
    pub bytes_out: u64,
}

impl Traffic {
    /// Writes the counters like the kernel, which ignores them in requests.
    pub(crate) fn put(&self, buffer: &mut Vec<u8>) {
        for (kind, count) in [
            (CONNECTIONS, self.connections),
            (PACKETS_IN, self.packets_in),
            (PACKETS_OUT, self.packets_out),
            (BYTES_IN, self.bytes_in),
            (BYTES_OUT, self.bytes_out),
        ] {
            attribute::put(buffer, kind, &count.to_ne_bytes());
        }
    }

    /// Reads the counters. Missing attributes leave 0, and unknown ones are ignored, including rates, which the
    /// kernel keeps only while an estimator runs.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut traffic = Self::default();
        for item in attribute::attributes(bytes) {
            let item = item?;
            let count = match item.kind() {
                CONNECTIONS => &mut traffic.connections,
                PACKETS_IN => &mut traffic.packets_in,
                PACKETS_OUT => &mut traffic.packets_out,
                BYTES_IN => &mut traffic.bytes_in,
                BYTES_OUT => &mut traffic.bytes_out,
                _ => continue,
            };
            let value = item.value().first_chunk();
            *count = u64::from_ne_bytes(*value.ok_or("a counter is shorter than 8 bytes")?);
        }
        Ok(traffic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(kind: u16, value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        attribute::put(&mut bytes, kind, &value.to_ne_bytes());
        bytes
    }

    #[test]
    fn each_counter_is_read_and_rates_are_left_out() {
        let kinds = (1..=10).flat_map(|kind| counted(kind, 1 << (u64::from(kind) + 30)));
        let traffic = Traffic::parse(&kinds.collect::<Vec<_>>()).unwrap();
        let wanted = Traffic {
            connections: 1 << 31,
            packets_in: 1 << 32,
            packets_out: 1 << 33,
            bytes_in: 1 << 34,
            bytes_out: 1 << 35,
        };
        assert_eq!(traffic, wanted);
        assert_eq!(Traffic::parse(&[]).unwrap(), Traffic::default());
    }

    #[test]
    fn a_counter_that_is_cut_short_is_an_error() {
        let mut bytes = Vec::new();
        attribute::put(&mut bytes, BYTES_IN, &7_u32.to_ne_bytes());
        assert!(Traffic::parse(&bytes).is_err());
    }
}
