//! What goes to the kernel's IPVS and its sets: counted, and shown to whoever wants to see it.

use super::LinuxKernel;

/// The part of the kernel that a datagram goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Virtual and real servers, over generic netlink.
    Ipvs,
    /// Sets, over netfilter's netlink.
    Ipset,
}

/// One datagram on its way to the kernel.
#[derive(Debug, Clone, Copy)]
pub struct Datagram<'a> {
    /// Where it goes.
    pub part: Part,
    /// Its netlink messages, one behind the other.
    pub bytes: &'a [u8],
    /// Whether they are to change something; others only ask.
    pub writes: bool,
}

/// What went to both since their sockets were opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Netlink messages.
    pub messages: u64,
    /// Of these, those that were to change something.
    pub writes: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl LinuxKernel {
    /// What went to IPVS and to sets so far.
    pub fn sent(&self) -> Sent {
        let servers = self.servers.socket.counters();
        let sets = self.sets.socket.counters();
        Sent {
            messages: servers.messages + sets.messages,
            writes: servers.writes + sets.writes,
            bytes: servers.bytes + sets.bytes,
        }
    }

    /// Shows `tap` every datagram before it is sent, from now on.
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
