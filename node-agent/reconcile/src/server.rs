//! Virtual and real servers. The same types are used for desired and observed state, so that comparing them is plain
//! equality.

use std::sync::Arc;

use crate::RealServers;

/// Flags of a virtual server, with the kernel's values.
pub mod flags {
    /// All connections of a client go to one backend (S-95).
    pub const PERSISTENT: u32 = 0x1;
    /// The scheduler `mh` also hashes the port (S-102).
    pub const MH_PORT: u32 = 0x10;
}

/// How a virtual server distributes new connections: everything except its real servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduling {
    /// The scheduler's name.
    pub scheduler: Arc<str>,
    /// See [`flags`].
    pub flags: u32,
    /// How long a client stays with its backend, in seconds; 0 without [`flags::PERSISTENT`].
    pub timeout: u32,
}

impl Scheduling {
    /// A virtual server with this scheduling and these real servers.
    pub fn over(self, real_servers: RealServers) -> VirtualServer {
        let Self {
            scheduler,
            flags,
            timeout,
        } = self;
        VirtualServer {
            scheduler,
            flags,
            timeout,
            real_servers,
        }
    }
}

/// A virtual server and its real servers. All of them forward by masquerading, the only method that allows different
/// ports for frontend and backend (S-100).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualServer {
    /// The scheduler's name.
    pub scheduler: Arc<str>,
    /// See [`flags`].
    pub flags: u32,
    /// How long a client stays with its backend, in seconds; 0 without [`flags::PERSISTENT`].
    pub timeout: u32,
    /// Weights by backend.
    pub real_servers: RealServers,
}

impl VirtualServer {
    /// Shares the memory of `with` for the parts that are equal.
    pub fn share(&mut self, with: &Self) {
        if self.scheduler == with.scheduler {
            self.scheduler = with.scheduler.clone();
        }
        self.real_servers.share(&with.real_servers);
    }
}

impl VirtualServer {
    /// Everything except its real servers.
    pub fn scheduling(&self) -> Scheduling {
        Scheduling {
            scheduler: self.scheduler.clone(),
            flags: self.flags,
            timeout: self.timeout,
        }
    }

    /// Whether everything except the real servers is equal.
    pub fn same_service(&self, other: &Self) -> bool {
        (&self.scheduler, self.flags, self.timeout)
            == (&other.scheduler, other.flags, other.timeout)
    }
}
