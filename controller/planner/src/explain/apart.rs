//! Endpoints that slices of a Service bring and that one of its ports never comes to see.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::{Family, Protocol};

use crate::backends::{EndpointCopy, PortEndpoints, copies};
use crate::model::{
    AddressType, ClusterModel, EndpointSlice, Service, ServicePort, SliceId, SlicePort,
};

/// What one slice says in vain, for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Apart {
    /// The slice.
    pub slice: SliceId,
    /// Why it says it in vain.
    pub reason: ApartReason,
    /// The addresses of its endpoints, in order.
    pub endpoints: Vec<IpAddr>,
}

/// Why endpoints of a slice are none of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApartReason {
    /// The Service does not answer in their family (S-7).
    OtherFamily(Family),
    /// The slice has no port of this name and protocol (S-10).
    NoSuchPort {
        /// The name; empty for a single unnamed port.
        name: Arc<str>,
        /// The protocol.
        protocol: Protocol,
        /// What it has instead.
        has: Vec<SlicePort>,
    },
    /// Another copy of the endpoint is believed (S-50, S-51).
    NotBelieved {
        /// Where the endpoint listens.
        port: u16,
        /// The slice with the copy that is believed.
        believed: SliceId,
        /// Why that one.
        because: NotBelieved,
    },
}

/// Why a copy of an endpoint is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotBelieved {
    /// This one is ending, the other is not.
    Ending,
    /// The other slice is newer, by its generation.
    Older,
    /// The other slice is the first by name, or has it further up.
    Later,
}

impl ApartReason {
    /// A word for tools.
    pub fn code(&self) -> &'static str {
        match self {
            Self::OtherFamily(_) => "OtherFamily",
            Self::NoSuchPort { .. } => "NoSuchPort",
            Self::NotBelieved { .. } => "NotBelieved",
        }
    }
}

/// To be read after the slice and its endpoints.
impl fmt::Display for ApartReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherFamily(family) => {
                write!(f, "the Service has no {family} cluster IP of its own")
            }
            Self::NoSuchPort {
                name,
                protocol,
                has,
            } => {
                f.write_str("the slice has no ")?;
                shown(name, *protocol, f)?;
                match has.as_slice() {
                    [] => f.write_str(" port, and no other"),
                    [first, others @ ..] => {
                        f.write_str(" port, but ")?;
                        shown(&first.name, first.protocol, f)?;
                        others.iter().try_for_each(|other| {
                            f.write_str(", ")?;
                            shown(&other.name, other.protocol, f)
                        })
                    }
                }
            }
            Self::NotBelieved {
                believed, because, ..
            } => {
                let why = match because {
                    NotBelieved::Ending => "this copy is ending and the other is not",
                    NotBelieved::Older => "that slice is newer",
                    NotBelieved::Later => "that slice comes first by name",
                };
                write!(f, "EndpointSlice {believed} is believed instead: {why}")
            }
        }
    }
}

fn shown(name: &str, protocol: Protocol, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match name {
        "" => write!(f, "unnamed {protocol}"),
        name => write!(f, "{name}/{protocol}"),
    }
}

/// What slices say in vain for a port that answers in these families, by slice.
pub(super) fn apart(
    model: &ClusterModel,
    service: &Service,
    port: &ServicePort,
    families: &[Family],
    merged: &PortEndpoints<'_>,
) -> Vec<Apart> {
    let slices = model.slices_of(&service.id).map(AsRef::as_ref);
    let mut apart: Vec<_> = slices
        .filter(|slice| !slice.endpoints.is_empty())
        .filter_map(|slice| whole(slice, port, families))
        .collect();
    let slices = model.slices_of(&service.id).map(AsRef::as_ref);
    let served = |copy: &EndpointCopy<'_>| families.contains(&Family::of(copy.endpoint.address));
    let lost = copies(port, slices).filter(served).filter_map(|copy| {
        let believed = merged.believed(copy.reached())?;
        not_believed(&copy, believed)
    });
    apart.extend(lost);
    apart.sort_by(|a, b| (&a.slice, &a.endpoints).cmp(&(&b.slice, &b.endpoints)));
    apart
}

/// A slice that is of no use to the port as a whole.
fn whole(slice: &EndpointSlice, port: &ServicePort, families: &[Family]) -> Option<Apart> {
    let family = match slice.address_type {
        AddressType::Ipv4 => Family::Ipv4,
        AddressType::Ipv6 => Family::Ipv6,
        // It holds no endpoint (S-53).
        AddressType::Fqdn => return None,
    };
    let same = |own: &&SlicePort| (&own.name, own.protocol) == (&port.name, port.protocol);
    let reason = if !families.contains(&family) {
        ApartReason::OtherFamily(family)
    } else if slice.ports.iter().find(same).is_none() {
        ApartReason::NoSuchPort {
            name: port.name.clone(),
            protocol: port.protocol,
            has: slice.ports.clone(),
        }
    } else {
        return None;
    };
    let mut endpoints: Vec<_> = slice.endpoints.iter().map(|e| e.address).collect();
    endpoints.sort_unstable();
    endpoints.dedup();
    Some(Apart {
        slice: slice.id.clone(),
        reason,
        endpoints,
    })
}

fn not_believed(copy: &EndpointCopy<'_>, believed: &EndpointCopy<'_>) -> Option<Apart> {
    // Two equal ports of one slice lead to the very same endpoint.
    if std::ptr::eq(copy.endpoint, believed.endpoint) {
        return None;
    }
    let because = if copy.endpoint.terminating != believed.endpoint.terminating {
        NotBelieved::Ending
    } else if copy.slice.generation != believed.slice.generation {
        NotBelieved::Older
    } else {
        NotBelieved::Later
    };
    Some(Apart {
        slice: copy.slice.id.clone(),
        reason: ApartReason::NotBelieved {
            port: copy.port,
            believed: believed.slice.id.clone(),
            because,
        },
        endpoints: vec![copy.endpoint.address],
    })
}
