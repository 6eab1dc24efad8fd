//! Services that are not on a node as their objects ask, as the node's agent reports. The report is bounded when it is
//! read (`stream::troubled`), and nothing follows from it but text, and which Services count as in force.

use portolan_plan::{Failing, ServiceId};

/// Maximum number of Services of a node that are kept with a message: as many as its status shows.
pub const MAX_SHOWN: usize = portolan_crds::limit::TROUBLES;

/// Why a Service is not on a node as its objects ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TroubleReason {
    /// The kernel lacks the scheduler that the Service asks for.
    SchedulerMissing,
    /// The nftables dataplane lacks the scheduler that the Service asks for.
    SchedulerUnsupported,
    /// The Service has more endpoints than the nftables dataplane can use.
    TooManyEndpoints,
    /// The kernel refuses an endpoint.
    EndpointRefused,
    /// The kernel refuses an element of the tables of nftables.
    ElementRefused,
    /// The agent cannot read an entry of the plan.
    EntryUnreadable,
    /// The agent cannot listen on the health check port.
    HealthPortClosed,
    /// A reason that this version does not know, from a newer agent.
    Other,
}

impl TroubleReason {
    const ALL: [Self; 8] = [
        Self::SchedulerMissing,
        Self::SchedulerUnsupported,
        Self::TooManyEndpoints,
        Self::EndpointRefused,
        Self::ElementRefused,
        Self::EntryUnreadable,
        Self::HealthPortClosed,
        Self::Other,
    ];

    /// The reason that an agent names.
    pub fn from_peer(text: &str) -> Self {
        let known = Self::ALL.into_iter().find(|reason| reason.as_str() == text);
        known.unwrap_or(Self::Other)
    }

    /// The reason as one word, for events and statuses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SchedulerMissing => "SchedulerMissing",
            Self::SchedulerUnsupported => "SchedulerUnsupported",
            Self::TooManyEndpoints => "TooManyEndpoints",
            Self::EndpointRefused => "EndpointRefused",
            Self::ElementRefused => "ElementRefused",
            Self::EntryUnreadable => "EntryUnreadable",
            Self::HealthPortClosed => "HealthPortClosed",
            Self::Other => "NotAsAsked",
        }
    }
}

/// One Service that is not on a node as its objects ask.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceTrouble {
    /// The Service.
    pub service: ServiceId,
    /// The reason.
    pub reason: TroubleReason,
    /// The message for people; it does not name the node.
    pub message: String,
    /// Whether the Service is served nevertheless.
    pub in_force: bool,
}

/// What an agent reports about Services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Troubled {
    /// The Services that are not completely in force.
    pub failing: Failing,
    /// Their number.
    pub failing_services: u32,
    /// The first [`MAX_SHOWN`] of all, with reasons.
    pub shown: Vec<ServiceTrouble>,
}

impl Troubled {
    /// What is known to be wrong with a Service that is not completely in force.
    pub fn failure(&self, service: &ServiceId) -> Option<&ServiceTrouble> {
        let mut failing = self.shown.iter().filter(|trouble| !trouble.in_force);
        failing.find(|trouble| trouble.service == *service)
    }
}
