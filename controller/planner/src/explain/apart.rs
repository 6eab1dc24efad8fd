//! Endpoints in slices of a Service that one of its ports does not use.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::{Family, Protocol};

use crate::backends::{EndpointCopy, PortEndpoints, PortSlices};
use crate::model::{
    AddressType, ClusterModel, Endpoint, EndpointSlice, Service, ServicePort, SliceId, SlicePort,
};

/// Unused endpoints of one slice, for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Apart {
    /// The slice.
    pub slice: SliceId,
    /// Why they are not used.
    pub reason: ApartReason,
    /// The addresses of the endpoints, in order.
    pub endpoints: Vec<IpAddr>,
}

/// Why a port does not use endpoints of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApartReason {
    /// The Service is not served in their family (S-7).
    OtherFamily(Family),
    /// The slice has no port of this name and protocol (S-10).
    NoSuchPort {
        /// The name; empty for a single unnamed port.
        name: Arc<str>,
        /// The protocol.
        protocol: Protocol,
        /// The ports of the slice.
        has: Vec<SlicePort>,
    },
    /// Another copy of the endpoint has precedence (S-50, S-51, S-217, S-245).
    NotBelieved {
        /// The port of the endpoint.
        port: u16,
        /// The slice whose copy has precedence; `None` if it is the same slice.
        believed: Option<SliceId>,
        /// Why that copy has precedence.
        because: NotBelieved,
    },
    /// The Service has more endpoints than its frontends leave room for (S-228).
    OverLimit,
}

/// Why another copy of an endpoint has precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotBelieved {
    /// This copy is terminating, the other is not.
    Ending,
    /// This copy is not ready, the other is.
    NotReady,
    /// The other copy is terminating and still serving, this one is not.
    NotServing,
    /// This copy names no node, the other does.
    NoNode,
    /// The other slice is newer, by its generation.
    Older,
    /// The other slice is the first by name, or contains it earlier.
    Later,
}

impl NotBelieved {
    /// Why a copy has a higher [rank](EndpointCopy::rank) than the one that is used.
    fn of(copy: &EndpointCopy<'_>, believed: &EndpointCopy<'_>) -> Self {
        let (own, other) = (copy.endpoint, believed.endpoint);
        let serves = |endpoint: &Endpoint| endpoint.terminating && endpoint.serving;
        if own.terminating && !other.terminating {
            Self::Ending
        } else if own.ready != other.ready {
            Self::NotReady
        } else if serves(own) != serves(other) {
            Self::NotServing
        } else if own.node.is_none() && other.node.is_some() {
            Self::NoNode
        } else if copy.slice.generation != believed.slice.generation {
            Self::Older
        } else {
            Self::Later
        }
    }
}

impl ApartReason {
    /// The reason as one word, for tools.
    pub fn code(&self) -> &'static str {
        match self {
            Self::OtherFamily(_) => "OtherFamily",
            Self::NoSuchPort { .. } => "NoSuchPort",
            Self::NotBelieved { .. } => "NotBelieved",
            Self::OverLimit => "TooManyEndpoints",
        }
    }
}

/// Follows the slice and its endpoints in a message.
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
            Self::OverLimit => f.write_str("the Service has too many endpoints"),
            Self::NotBelieved {
                believed, because, ..
            } => {
                let why = match because {
                    NotBelieved::Ending => "this copy is terminating and the other is not",
                    NotBelieved::NotReady => "this copy is not ready and the other is",
                    NotBelieved::NotServing => {
                        "the other copy is terminating and still serving, this one is not"
                    }
                    NotBelieved::NoNode => "this copy names no node and the other does",
                    NotBelieved::Older => "that slice is newer",
                    NotBelieved::Later if believed.is_none() => "it comes first",
                    NotBelieved::Later => "that slice comes first by name",
                };
                match believed {
                    Some(slice) => write!(f, "EndpointSlice {slice} takes precedence: {why}"),
                    None => write!(f, "another entry of this slice takes precedence: {why}"),
                }
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

/// Unused endpoints for a port with frontends in these families on a node, by slice.
pub(super) fn apart(
    model: &ClusterModel,
    node: &Arc<str>,
    (service, port): (&Service, &ServicePort),
    families: &[Family],
    slices: &PortSlices<'_>,
    merged: &PortEndpoints<'_>,
) -> Vec<Apart> {
    let all = model.slices_of(&service.id).map(AsRef::as_ref);
    let mut apart: Vec<_> = all
        .filter(|slice| !slice.endpoints.is_empty())
        .filter_map(|slice| whole(slice, port, families))
        .collect();
    let served = |copy: &EndpointCopy<'_>| families.contains(&Family::of(copy.endpoint.address));
    let lost = slices.copies(port).filter(served);
    // A copy that names this node counts here, for policy Local and for hairpin (S-245).
    let is_own = |copy: &EndpointCopy<'_>| {
        let own = merged.believed_on(node, copy.reached());
        own.is_some_and(|own| std::ptr::eq(own.endpoint, copy.endpoint))
    };
    let lost = lost.filter(|copy| !is_own(copy));
    let lost = lost.filter_map(|copy| match merged.believed(copy.reached()) {
        Some(believed) => not_believed(&copy, believed),
        None => Some(Apart {
            slice: copy.slice.id.clone(),
            reason: ApartReason::OverLimit,
            endpoints: vec![copy.endpoint.address],
        }),
    });
    apart.extend(lost);
    apart.sort_by(|a, b| (&a.slice, &a.endpoints).cmp(&(&b.slice, &b.endpoints)));
    apart
}

/// A slice whose endpoints the port cannot use at all.
fn whole(slice: &EndpointSlice, port: &ServicePort, families: &[Family]) -> Option<Apart> {
    let family = match slice.address_type {
        AddressType::Ipv4 => Family::Ipv4,
        AddressType::Ipv6 => Family::Ipv6,
        // It contains no endpoints (S-53).
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
    // Two equal ports of one slice lead to the same endpoint.
    if std::ptr::eq(copy.endpoint, believed.endpoint) {
        return None;
    }
    let is_other = believed.slice.id != copy.slice.id;
    Some(Apart {
        slice: copy.slice.id.clone(),
        reason: ApartReason::NotBelieved {
            port: copy.port,
            believed: is_other.then(|| believed.slice.id.clone()),
            because: NotBelieved::of(copy, believed),
        },
        endpoints: vec![copy.endpoint.address],
    })
}
