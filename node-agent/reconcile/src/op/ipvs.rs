use std::fmt;
use std::sync::Arc;

use portolan_plan::Family;

use crate::{RealServerKey, Scheduling, Timeouts, VirtualServerKey};

/// Make sure that the kernel has a scheduler: the kernel loads the module of an unknown one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerOp {
    /// The scheduler's name.
    pub scheduler: Arc<str>,
}

impl fmt::Display for SchedulerOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "load scheduler {}", self.scheduler)
    }
}

/// One change of IPVS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IpvsOp {
    /// Change the timeouts of IPVS connections; 0 keeps a timeout.
    SetTimeouts {
        /// The timeouts.
        timeouts: Timeouts,
    },
    /// Add a virtual server, without real servers.
    AddVirtualServer {
        /// The virtual server.
        server: VirtualServerKey,
        /// Scheduler, flags and timeout.
        scheduling: Scheduling,
    },
    /// Change scheduler, flags or timeout of a virtual server in place.
    EditVirtualServer {
        /// The virtual server.
        server: VirtualServerKey,
        /// Scheduler, flags and timeout.
        scheduling: Scheduling,
    },
    /// Delete a virtual server with all its real servers.
    DeleteVirtualServer {
        /// The virtual server.
        server: VirtualServerKey,
    },
    /// Add a real server.
    AddRealServer {
        /// The virtual server.
        server: VirtualServerKey,
        /// The backend.
        backend: RealServerKey,
        /// Its weight.
        weight: u32,
    },
    /// Change a real server's weight.
    EditRealServer {
        /// The virtual server.
        server: VirtualServerKey,
        /// The backend.
        backend: RealServerKey,
        /// Its weight.
        weight: u32,
    },
    /// Delete a real server.
    DeleteRealServer {
        /// The virtual server.
        server: VirtualServerKey,
        /// The backend.
        backend: RealServerKey,
    },
}

impl IpvsOp {
    /// The virtual server that is changed; `None` for timeouts.
    pub fn server(&self) -> Option<&VirtualServerKey> {
        match self {
            Self::SetTimeouts { .. } => None,
            Self::AddVirtualServer { server, .. }
            | Self::EditVirtualServer { server, .. }
            | Self::DeleteVirtualServer { server }
            | Self::AddRealServer { server, .. }
            | Self::EditRealServer { server, .. }
            | Self::DeleteRealServer { server, .. } => Some(server),
        }
    }

    pub(super) fn families(&self) -> &'static [Family] {
        let family = |server: &VirtualServerKey| super::only(Family::of(server.address));
        self.server().map_or(&Family::BOTH, family)
    }
}

impl fmt::Display for IpvsOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetTimeouts { timeouts } => write!(f, "set timeouts of connections: {timeouts}"),
            Self::AddVirtualServer { server, scheduling } => {
                write!(f, "add virtual server {server} ({})", scheduling.scheduler)
            }
            Self::EditVirtualServer { server, scheduling } => {
                write!(f, "edit virtual server {server} ({})", scheduling.scheduler)
            }
            Self::DeleteVirtualServer { server } => write!(f, "delete virtual server {server}"),
            Self::AddRealServer {
                server,
                backend,
                weight,
            } => {
                write!(f, "add {backend} (weight {weight}) to {server}")
            }
            Self::EditRealServer {
                server,
                backend,
                weight,
            } => {
                write!(f, "set weight of {backend} in {server} to {weight}")
            }
            Self::DeleteRealServer { server, backend } => {
                write!(f, "delete {backend} from {server}")
            }
        }
    }
}
