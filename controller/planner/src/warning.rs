//! What people should hear about their objects.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_plan::{Family, FrontendKind, Protocol, ServiceId, WarningDocument};

use crate::StraysOfNode;
use crate::model::SliceId;

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
    /// An older Service answers there (S-14).
    Conflict {
        /// What kind of frontend it would be.
        kind: FrontendKind,
        /// The address; `None` for a node port.
        address: Option<IpAddr>,
        /// The protocol.
        protocol: Protocol,
        /// The port.
        port: u16,
        /// Who has it.
        winner: ServiceId,
    },
    /// An older Service has the port on which nodes would tell about endpoints (S-14, S-134).
    HealthPortTaken {
        /// The port.
        port: u16,
        /// Who has it.
        winner: ServiceId,
    },
    /// On a node's own address a node port, or a health check port, comes first (S-31).
    NodePortFirst {
        /// What kind of frontend it would be.
        kind: FrontendKind,
        /// The address.
        address: IpAddr,
        /// The protocol.
        protocol: Protocol,
        /// The port.
        port: u16,
        /// Whose node port it is.
        winner: ServiceId,
    },
    /// There is more to be said than fits.
    More(usize),
    /// No Service can answer on such an address (S-29).
    UnusableAddress {
        /// What kind of frontend it would be.
        kind: FrontendKind,
        /// The address.
        address: IpAddr,
    },
    /// The Service has no cluster IP of the address's family, so nothing serves that family (S-7).
    NoClusterIp {
        /// What kind of frontend it would be.
        kind: FrontendKind,
        /// The address.
        address: IpAddr,
    },
    /// Nodes that answered there would cut somebody off.
    NeverCaptured {
        /// What kind of frontend it would be.
        kind: FrontendKind,
        /// The address.
        address: IpAddr,
        /// Whose address it is.
        owner: AddressOwner,
    },
    /// The settings allow no such external IP.
    NotAllowed {
        /// The address.
        address: IpAddr,
    },
    /// External IPs are served, and Kubernetes gives them up (S-237).
    ExternalIps {
        /// The first of them.
        first: IpAddr,
        /// How many others there are.
        more: usize,
    },
    /// Nodes leave the address to somebody else (S-236).
    Excluded {
        /// What kind of frontend it would be.
        kind: FrontendKind,
        /// The address.
        address: IpAddr,
    },
    /// Source ranges are given, and none is of a family in which a balancer has an address: nobody
    /// may connect there (S-88).
    NoSourceRange {
        /// The family.
        family: Family,
    },
    /// Slices bring endpoints of a family in which the Service has no cluster IP (S-7).
    OtherFamily {
        /// The family.
        family: Family,
        /// The first such slice by name.
        slice: SliceId,
        /// How many others there are.
        more: usize,
    },
    /// The settings limit node ports to ranges, and none is of a family in which the node has
    /// addresses (S-33).
    NoNodePortRange {
        /// The family.
        family: Family,
    },
    /// Nothing tells the node's pods from others in a family in which Services have cluster IPs
    /// (S-70).
    NoPodRange {
        /// The family.
        family: Family,
    },
    /// Endpoints that run there have addresses outside the ranges by which the node tells its pods.
    PodsOutside(StraysOfNode),
    /// The slice says no Service (S-54).
    SliceWithoutService,
    /// The slice holds names, not addresses (S-53).
    SliceOfNames,
}

/// Whose address it is that no Service may capture.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressOwner {
    /// An API server's.
    ApiServer,
    /// An endpoint's: some pod has it.
    Endpoint {
        /// The slice that says so, the first by name.
        slice: SliceId,
    },
    /// A node's, and what listens on the port there.
    Node {
        /// The node.
        node: Arc<str>,
        /// What listens.
        what: &'static str,
    },
}

impl fmt::Display for AddressOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApiServer => f.write_str("and this port are the API server's own"),
            Self::Endpoint { slice } => {
                write!(f, "is the address of an endpoint in EndpointSlice {slice}")
            }
            Self::Node { node, what } => write!(f, "and this port are the {what} of node {node}"),
        }
    }
}

/// A place that a Service wants, in words.
struct Place {
    field: &'static str,
    address: Option<IpAddr>,
    port: u16,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            address,
            port,
        } = self;
        match address {
            Some(address) => write!(f, "{field}: {address} port {port}"),
            None => write!(f, "{field}: {port}"),
        }
    }
}

/// The field that names a frontend.
fn field(kind: FrontendKind) -> &'static str {
    match kind {
        FrontendKind::ClusterIp => "spec.clusterIPs",
        FrontendKind::ExternalIp => "spec.externalIPs",
        FrontendKind::LoadBalancer => "status.loadBalancer.ingress",
        FrontendKind::NodePort => "spec.ports[].nodePort",
    }
}

impl Reason {
    /// A word for tools.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Ignored { .. } => "Ignored",
            Self::Conflict { .. } => "Conflict",
            Self::HealthPortTaken { .. } => "HealthPortTaken",
            Self::NodePortFirst { .. } => "NodePortFirst",
            Self::More(_) => "More",
            Self::UnusableAddress { .. } => "UnusableAddress",
            Self::NoClusterIp { .. } => "NoClusterIP",
            Self::NeverCaptured { .. } => "NeverCaptured",
            Self::NotAllowed { .. } => "NotAllowed",
            Self::ExternalIps { .. } => "ExternalIPs",
            Self::Excluded { .. } => "Excluded",
            Self::NoSourceRange { .. } => "NoSourceRange",
            Self::OtherFamily { .. } => "OtherFamily",
            Self::NoNodePortRange { .. } => "NoNodePortRange",
            Self::NoPodRange { .. } => "NoPodRange",
            Self::PodsOutside(_) => "PodsOutsideRanges",
            Self::SliceWithoutService => "NoService",
            Self::SliceOfNames => "AddressTypeFQDN",
        }
    }
}

impl Reason {
    /// Why no node answers for the Service on one of its addresses, whatever others ask for.
    fn fmt_refusal(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnusableAddress { kind, address } => write!(
                f,
                "{}: {address} is loopback, link-local, multicast or unspecified; no Service can answer \
                 there",
                field(*kind)
            ),
            Self::NoClusterIp { kind, address } => write!(
                f,
                "{}: {address} is {family}, the Service has no {family} cluster IP, so nothing serves it; \
                 check spec.ipFamilies",
                field(*kind),
                family = Family::of(*address)
            ),
            Self::NeverCaptured {
                kind,
                address,
                owner,
            } => write!(
                f,
                "{}: {address} {owner}; no node answers there for a Service, or others would be cut \
                 off; take it out, or use another address",
                field(*kind)
            ),
            Self::NotAllowed { address } => write!(
                f,
                "spec.externalIPs: {address} is in no range of spec.settings.externalIPs.allowedCIDRs of \
                 the ProxyConfig; use a Service of type LoadBalancer, or have the range allowed there"
            ),
            Self::Excluded { kind, address } => write!(
                f,
                "{}: {address} is in a range of spec.settings.excludeCIDRs of the ProxyConfig, so no node answers \
                 there; use another address, or take it out of the ranges",
                field(*kind)
            ),
            _ => Ok(()),
        }
    }

    /// What is unwise or useless about a Service that is served.
    fn fmt_of_service(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExternalIps { first, more } => write!(
                f,
                "spec.externalIPs: {first}{}: Kubernetes is giving up external IPs (KEP-5707), since whoever may \
                 write Services may take any address by them; use a Service of type LoadBalancer",
                and_more(*more)
            ),
            Self::NoSourceRange { family } => write!(
                f,
                "spec.loadBalancerSourceRanges: none is {family}, so nobody may connect to the balancer's \
                 {family} address; add a range, ::/0 or 0.0.0.0/0 for everybody"
            ),
            Self::OtherFamily {
                family,
                slice,
                more,
            } => write!(
                f,
                "EndpointSlice {slice}{}: endpoints are {family}, the Service has no {family} cluster \
                 IP, so they serve nobody; check spec.ipFamilies",
                and_more(*more)
            ),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ignored { field, problem } => write!(f, "{field}: {problem}"),
            Self::Conflict { kind, address, protocol, port, winner } => {
                let place = Place { field: field(*kind), address: *address, port: *port };
                write!(
                    f,
                    "{place}/{protocol} belongs to Service {winner}, which {}",
                    why_first(*kind)
                )
            }
            Self::HealthPortTaken { port, winner } => write!(
                f,
                "spec.healthCheckNodePort: {port} belongs to Service {winner}, which is older or comes \
                 first by name; create one of them anew with another port"
            ),
            Self::NodePortFirst { kind, address, protocol, port, winner } => {
                let place = Place { field: field(*kind), address: Some(*address), port: *port };
                write!(
                    f,
                    "{place}/{protocol} is a node's address and a node port or health check port of \
                     Service {winner}, which comes first on that node; use another port"
                )
            }
            Self::More(count) => write!(f, "and {count} more like these"),
            Self::UnusableAddress { .. }
            | Self::NoClusterIp { .. }
            | Self::NeverCaptured { .. }
            | Self::NotAllowed { .. }
            | Self::Excluded { .. } => self.fmt_refusal(f),
            Self::ExternalIps { .. } | Self::NoSourceRange { .. } | Self::OtherFamily { .. } => {
                self.fmt_of_service(f)
            }
            Self::NoNodePortRange { family } => write!(
                f,
                "spec.settings.nodePortAddresses of the ProxyConfig: no range is {family}, so node ports do \
                 not answer on the node's {family} addresses; add a range, ::/0 or 0.0.0.0/0 for all"
            ),
            Self::NoPodRange { family } => write!(
                f,
                "spec.podCIDRs: none is {family}, so pods are not told from others: everybody is \
                 masqueraded at cluster IPs, and nobody is dropped as an outsider; check the Node, or \
                 spec.settings.localDetection of the ProxyConfig"
            ),
            Self::PodsOutside(strays) => strays.fmt(f),
            Self::SliceWithoutService => f.write_str(
                "metadata.labels: kubernetes.io/service-name is missing; its endpoints serve no Service",
            ),
            Self::SliceOfNames => {
                f.write_str("addressType: FQDN holds names; a proxy serves addresses only")
            }
        }
    }
}

/// Why another Service has a place, and what to do.
fn why_first(kind: FrontendKind) -> &'static str {
    match kind {
        FrontendKind::ClusterIp => {
            "is older or comes first by name; create one of them anew with another cluster IP"
        }
        FrontendKind::ExternalIp | FrontendKind::LoadBalancer => {
            "has it as its cluster IP or as a balancer's address before an external IP, is older, or comes first \
             by name; give one of them another address or port"
        }
        FrontendKind::NodePort => "is older or comes first by name; give one of them another port",
    }
}

/// How many others there are, where there are some.
fn and_more(count: usize) -> String {
    match count {
        0 => String::new(),
        count => format!(" and {count} more"),
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
