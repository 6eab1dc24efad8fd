//! Counts the messages to IPVS and ipset, and passes them and those to nf_tables to a tap for measurements.

use super::{LinuxKernel, NftTables};

/// The part of the kernel that a datagram goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Virtual and real servers, over generic netlink.
    Ipvs,
    /// Sets, over netfilter's netlink.
    Ipset,
    /// The tables of nftables, over netfilter's netlink.
    Tables,
}

/// One datagram to the kernel.
#[derive(Debug, Clone, Copy)]
pub struct Datagram<'a> {
    /// Its destination.
    pub part: Part,
    /// Its concatenated netlink messages.
    pub bytes: &'a [u8],
    /// Whether they change something; others only read.
    pub writes: bool,
}

/// Counters of the messages to both since their sockets were opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Number of netlink messages.
    pub messages: u64,
    /// Number of those that change something.
    pub writes: u64,
    /// Total size in bytes.
    pub bytes: u64,
}

impl NftTables {
    /// Calls `tap` with every later datagram before it is sent.
    pub fn tap(&mut self, mut tap: impl FnMut(Datagram<'_>) + Send + 'static) {
        self.socket.tap(move |outgoing| {
            tap(Datagram {
                part: Part::Tables,
                bytes: outgoing.bytes,
                writes: outgoing.writes,
            });
        });
    }
}

impl LinuxKernel {
    /// The counters so far.
    pub fn sent(&self) -> Sent {
        let Ok(ipvs) = &self.ipvs else {
            return Sent::default();
        };
        let servers = ipvs.servers.socket.counters();
        let sets = ipvs.sets.socket.counters();
        Sent {
            messages: servers.messages + sets.messages,
            writes: servers.writes + sets.writes,
            bytes: servers.bytes + sets.bytes,
        }
    }

    /// Calls `tap` with every later datagram before it is sent.
    pub fn tap(&mut self, tap: impl FnMut(Datagram<'_>) + Clone + Send + 'static) {
        let Ok(ipvs) = &mut self.ipvs else {
            return;
        };
        let mut to_servers = tap.clone();
        ipvs.servers.socket.tap(move |outgoing| {
            to_servers(Datagram {
                part: Part::Ipvs,
                bytes: outgoing.bytes,
                writes: outgoing.writes,
            });
        });
        let mut to_sets = tap;
        ipvs.sets.socket.tap(move |outgoing| {
            to_sets(Datagram {
                part: Part::Ipset,
                bytes: outgoing.bytes,
                writes: outgoing.writes,
            });
        });
    }
}
