//! What people should hear about their objects.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::{Family, Protocol, ServiceId, WarningDocument};

use crate::model::{NotPlanned, SliceId};

/// Why something of an object has no effect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A value was passed over when the object was read.
    Ignored {
        /// The path of the field.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// This version does not act on these fields.
    NotPlanned(BTreeSet<NotPlanned>),
    /// An older Service answers there (S-14).
    Conflict {
        /// The cluster IP.
        address: IpAddr,
        /// The protocol.
        protocol: Protocol,
        /// The port.
        port: u16,
        /// Who has it.
        winner: ServiceId,
    },
    /// No Service can answer on such an address (S-29).
    UnusableAddress(IpAddr),
    /// Slices bring endpoints of a family in which the Service has no cluster IP (S-7).
    OtherFamily {
        /// The family.
        family: Family,
        /// The first such slice by name.
        slice: SliceId,
        /// How many others there are.
        more: usize,
    },
    /// The slice says no Service (S-54).
    SliceWithoutService,
    /// The slice holds names, not addresses (S-53).
    SliceOfNames,
}

impl Reason {
    /// A word for tools.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Ignored { .. } => "Ignored",
            Self::NotPlanned(_) => "NotPlanned",
            Self::Conflict { .. } => "Conflict",
            Self::UnusableAddress(_) => "UnusableAddress",
            Self::OtherFamily { .. } => "OtherFamily",
            Self::SliceWithoutService => "NoService",
            Self::SliceOfNames => "AddressTypeFQDN",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ignored { field, problem } => write!(f, "{field}: {problem}"),
            Self::NotPlanned(fields) => {
                let fields: Vec<_> = fields.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "{}: no effect in this version, which plans cluster IPs only",
                    fields.join(", ")
                )
            }
            Self::Conflict { address, protocol, port, winner } => write!(
                f,
                "spec.clusterIPs: {address} port {port}/{protocol} belongs to Service {winner}, which is \
                 older or comes first by name; give one of them another address or port"
            ),
            Self::UnusableAddress(address) => write!(
                f,
                "spec.clusterIPs: {address} is loopback, link-local, multicast or unspecified; \
                 no Service can answer there"
            ),
            Self::OtherFamily { family, slice, more } => {
                write!(f, "EndpointSlice {slice}")?;
                if *more > 0 {
                    write!(f, " and {more} more")?;
                }
                write!(
                    f,
                    ": endpoints are {family}, the Service has no {family} cluster IP, so they serve \
                     nobody; check spec.ipFamilies"
                )
            }
            Self::SliceWithoutService => f.write_str(
                "metadata.labels: kubernetes.io/service-name is missing; its endpoints serve no Service",
            ),
            Self::SliceOfNames => {
                f.write_str("addressType: FQDN holds names; a proxy serves addresses only")
            }
        }
    }
}

/// Something that was ignored or looks wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    /// The object, like `Service shop/cart`.
    pub object: Arc<str>,
    /// Why.
    pub reason: Reason,
}

impl Warning {
    /// About an object of this kind and name.
    pub(crate) fn new(kind: &str, name: &impl fmt::Display, reason: Reason) -> Self {
        Self {
            object: format!("{kind} {name}").into(),
            reason,
        }
    }

    /// As a plan document carries it.
    pub fn document(&self) -> WarningDocument {
        WarningDocument {
            object: self.object.to_string(),
            reason: self.reason.code().to_owned(),
            message: self.reason.to_string(),
        }
    }
}
