//! Counts the messages to IPVS and ipset, and passes them to a tap for measurements.

use super::LinuxKernel;

/// The part of the kernel that a datagram goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Virtual and real servers, over generic netlink.
    Ipvs,
    /// Sets, over netfilter's netlink.
    Ipset,
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

impl LinuxKernel {
    /// The counters so far.
    pub fn sent(&self) -> Sent {
        let servers = self.servers.socket.counters();
        let sets = self.sets.socket.counters();
        Sent {
            messages: servers.messages + sets.messages,
            writes: servers.writes + sets.writes,
            bytes: servers.bytes + sets.bytes,
        }
    }

    /// Calls `tap` with every later datagram before it is sent.
    pub fn tap(&mut self, tap: impl FnMut(Datagram<'_>) + Clone + Send + 'static) {
        let mut to_servers = tap.clone();
        self.servers.socket.tap(move |outgoing| {
            to_servers(Datagram {
                part: Part::Ipvs,
                bytes: outgoing.bytes,
                writes: outgoing.writes,
            });
        });
        let mut to_sets = tap;
        self.sets.socket.tap(move |outgoing| {
            to_sets(Datagram {
                part: Part::Ipset,
                bytes: outgoing.bytes,
                writes: outgoing.writes,
            });
        });
    }
}
