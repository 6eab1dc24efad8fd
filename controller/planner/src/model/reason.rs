//! Why something in an object has no effect.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::{Family, FrontendKind, Protocol, ServiceId};

use super::SliceId;
use crate::limits::MAX_LOCAL_ENDPOINTS;

/// Why a part of an object has no effect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A value was ignored when the object was read.
    Ignored {
        /// The path of the field.
        field: String,
        /// The problem.
        problem: String,
    },
    /// Another Service has precedence on this address and port (S-14).
    Conflict {
        /// The kind of frontend.
        kind: FrontendKind,
        /// The address; `None` for a node port.
        address: Option<IpAddr>,
        /// The protocol.
        protocol: Protocol,
        /// The port.
        port: u16,
        /// The Service that has precedence.
        winner: ServiceId,
    },
    /// Another Service has precedence on the health check port (S-14, S-134).
    HealthPortTaken {
        /// The port.
        port: u16,
        /// The Service that has precedence.
        winner: ServiceId,
    },
    /// On a node's own address, a node port or health check port has precedence (S-31).
    NodePortFirst {
        /// The kind of frontend.
        kind: FrontendKind,
        /// The address.
        address: IpAddr,
        /// The protocol.
        protocol: Protocol,
        /// The port.
        port: u16,
        /// The Service with the node port.
        winner: ServiceId,
    },
    /// Number of warnings that were omitted.
    More(usize),
    /// The address is not valid for a Service (S-29).
    UnusableAddress {
        /// The kind of frontend.
        kind: FrontendKind,
        /// The address.
        address: IpAddr,
    },
    /// The Service has no cluster IP in the family of the address, so that family is not served (S-7).
    NoClusterIp {
        /// The kind of frontend.
        kind: FrontendKind,
        /// The address.
        address: IpAddr,
    },
    /// Serving the address would cut off its owner.
    NeverCaptured {
        /// The kind of frontend.
        kind: FrontendKind,
        /// The address.
        address: IpAddr,
        /// The owner of the address.
        owner: AddressOwner,
    },
    /// The settings do not allow the external IP.
    NotAllowed {
        /// The address.
        address: IpAddr,
    },
    /// External IPs are served, but Kubernetes deprecates them (S-237).
    ExternalIps {
        /// The first of them.
        first: IpAddr,
        /// Number of others.
        more: usize,
    },
    /// The address is in `excludeCIDRs`, so nodes do not serve it (S-236).
    Excluded {
        /// The kind of frontend.
        kind: FrontendKind,
        /// The address.
        address: IpAddr,
    },
    /// Source ranges are set, but none is of a family in which the load balancer has an address: no client may
    /// connect there (S-88).
    NoSourceRange {
        /// The family.
        family: Family,
    },
    /// Slices contain endpoints of a family in which the Service has no cluster IP (S-7).
    OtherFamily {
        /// The family.
        family: Family,
        /// The first such slice by name.
        slice: SliceId,
        /// Number of others.
        more: usize,
    },
    /// The settings limit node ports to ranges, and none is of a family in which the node has addresses (S-33).
    NoNodePortRange {
        /// The family.
        family: Family,
    },
    /// The node cannot recognize its pods in a family in which Services have cluster IPs (S-70).
    NoPodRange {
        /// The family.
        family: Family,
    },
    /// Endpoints on the node have addresses outside of the pod ranges by which the node recognizes its pods.
    PodsOutside(NodeOutsideRanges),
    /// The Service has more endpoints than its frontends leave room for (S-228).
    TooManyEndpoints {
        /// Number of unused endpoints, counted for each port.
        left_out: usize,
        /// Number of endpoints that each port uses, for each family.
        most: usize,
    },
    /// A node has too many endpoints times ports of the Service (S-228).
    TooManyLocalEndpoints {
        /// The first such node.
        node: Arc<str>,
        /// Number of others.
        more: usize,
    },
    /// The ports have endpoints on too many different sets of nodes (S-228).
    TooManyHeads {
        /// Number of nodes and zones that are served as if they had no endpoints of their own.
        left_out: usize,
    },
    /// The slice belongs to no Service (S-54).
    SliceWithoutService,
    /// The slice contains names, not addresses (S-53).
    SliceOfNames,
}

/// The owner of an address that no Service may capture.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressOwner {
    /// An API server.
    ApiServer,
    /// An endpoint; a pod has the address.
    Endpoint {
        /// The first slice by name that contains it.
        slice: SliceId,
    },
    /// A node, with a listener on the port.
    Node {
        /// The node.
        node: Arc<str>,
        /// The listener.
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

/// An address and port that a Service claims, for messages.
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

/// The field of a Service that contains a frontend.
fn field(kind: FrontendKind) -> &'static str {
    match kind {
        FrontendKind::ClusterIp => "spec.clusterIPs",
        FrontendKind::ExternalIp => "spec.externalIPs",
        FrontendKind::LoadBalancer => "status.loadBalancer.ingress",
        FrontendKind::NodePort => "spec.ports[].nodePort",
    }
}

impl Reason {
    /// The reason as one word, for tools.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Ignored { .. } => "Ignored",
            Self::Conflict { .. } => "Conflict",
            Self::HealthPortTaken { .. } => "HealthPortTaken",
            Self::NodePortFirst { .. } => "NodePortFirst",
            Self::More(_) => "MoreWarnings",
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
            Self::TooManyEndpoints { .. } => "TooManyEndpoints",
            Self::TooManyLocalEndpoints { .. } => "TooManyLocalEndpoints",
            Self::TooManyHeads { .. } => "TooManyNodeSets",
            Self::SliceWithoutService => "NoService",
            Self::SliceOfNames => "AddressTypeFQDN",
        }
    }

    /// Why no node serves an address of the Service, independent of other Services.
    fn fmt_refusal(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnusableAddress { kind, address } => write!(
                f,
                "{}: {address} is loopback, link-local, multicast or unspecified; no Service can use it",
                field(*kind)
            ),
            Self::NoClusterIp { kind, address } => write!(
                f,
                "{}: {address} is {family}, but the Service has no {family} cluster IP, so it is not served; \
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
                "{}: {address} {owner}; no node serves it for a Service, because that would cut off the \
                 owner; remove it, or use another address",
                field(*kind)
            ),
            Self::NotAllowed { address } => write!(
                f,
                "spec.externalIPs: {address} is in no range of spec.settings.externalIPs.allowedCIDRs of \
                 the ProxyConfig, so it is not served; use a Service of type LoadBalancer, or add the range there"
            ),
            Self::Excluded { kind, address } => write!(
                f,
                "{}: {address} is in a range of spec.settings.excludeCIDRs of the ProxyConfig, so no node serves \
                 it; use another address, or remove the range",
                field(*kind)
            ),
            _ => Ok(()),
        }
    }

    /// Problems of a Service that is served.
    fn fmt_of_service(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExternalIps { first, more } => write!(
                f,
                "spec.externalIPs: {first}{}: Kubernetes deprecates external IPs (KEP-5707), because anyone who can \
                 write Services can claim any address; use a Service of type LoadBalancer",
                and_more(*more)
            ),
            Self::NoSourceRange { family } => write!(
                f,
                "spec.loadBalancerSourceRanges: none is {family}, so no client may connect to the {family} \
                 address of the load balancer; add a range, ::/0 or 0.0.0.0/0 for all clients"
            ),
            Self::OtherFamily {
                family,
                slice,
                more,
            } => write!(
                f,
                "EndpointSlice {slice}{}: endpoints are {family}, but the Service has no {family} cluster \
                 IP, so they are not used; check spec.ipFamilies",
                and_more(*more)
            ),
            _ => Ok(()),
        }
    }
}

impl Reason {
    /// What a Service has too much of (S-228).
    fn fmt_limit(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyEndpoints { left_out, most } => write!(
                f,
                "EndpointSlices: {left_out} endpoints, counted for each port, are not used: each port uses at most \
                 {most} of each family, because addresses times endpoints of a Service are limited; use fewer \
                 ports or addresses, or several Services"
            ),
            Self::TooManyLocalEndpoints { node, more } => write!(
                f,
                "EndpointSlices: node {node}{} has more than {MAX_LOCAL_ENDPOINTS} endpoints times ports of the \
                 Service; further pods there cannot connect to themselves through it; use fewer ports",
                and_more(*more)
            ),
            Self::TooManyHeads { left_out } => write!(
                f,
                "EndpointSlices: the ports have endpoints on too many different sets of nodes, so {left_out} nodes or \
                 zones are served as if they had no endpoints of their own; use a Service for each port"
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
                 first by name, so no node answers health checks of this Service; recreate one of them with \
                 another port"
            ),
            Self::NodePortFirst { kind, address, protocol, port, winner } => {
                let place = Place { field: field(*kind), address: Some(*address), port: *port };
                write!(
                    f,
                    "{place}/{protocol} is a node's address and a node port or health check port of \
                     Service {winner}, which has precedence on that node; use another port"
                )
            }
            Self::More(count) => write!(f, "{count} more warnings about this Service are not listed"),
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
                "spec.settings.nodePortAddresses of the ProxyConfig: no range is {family}, so node ports are \
                 not served on the node's {family} addresses; add a range, ::/0 or 0.0.0.0/0 for all"
            ),
            Self::NoPodRange { family } => write!(
                f,
                "spec.podCIDRs: none is {family}, so the node cannot recognize its pods: all clients are \
                 masqueraded at cluster IPs, and none is dropped as external; check the Node, or \
                 spec.settings.localDetection of the ProxyConfig"
            ),
            Self::PodsOutside(outside_ranges) => outside_ranges.fmt(f),
            Self::TooManyEndpoints { .. }
            | Self::TooManyLocalEndpoints { .. }
            | Self::TooManyHeads { .. } => self.fmt_limit(f),
            Self::SliceWithoutService => f.write_str(
                "metadata.labels: kubernetes.io/service-name is missing; its endpoints serve no Service",
            ),
            Self::SliceOfNames => {
                f.write_str("addressType: FQDN contains names; a service proxy needs addresses")
            }
        }
    }
}

/// Why another Service has precedence, and what to do.
fn why_first(kind: FrontendKind) -> &'static str {
    match kind {
        FrontendKind::ClusterIp => {
            "is older or comes first by name, so this Service is not served there; recreate one of them with another \
             cluster IP"
        }
        FrontendKind::ExternalIp | FrontendKind::LoadBalancer => {
            "has precedence (a cluster IP before a load balancer address, that before an external IP, then the older \
             Service, then the first by name), so this Service is not served there; give one of them another address \
             or port"
        }
        FrontendKind::NodePort => {
            "is older or comes first by name, so this Service is not served there; give one of them another port"
        }
    }
}

/// The number of others, if any.
fn and_more(count: usize) -> String {
    match count {
        0 => String::new(),
        count => format!(" and {count} more"),
    }
}

/// The result for a node with at least one endpoint outside of its ranges.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeOutsideRanges {
    /// Number of compared endpoints; a pod counts once for each EndpointSlice that contains it.
    pub checked: usize,
    /// Number of endpoints outside of the ranges, at least 1.
    pub outside: usize,
    /// The address of the first of them, in the order of slice names.
    pub first: IpAddr,
    /// The slice of that endpoint.
    pub slice: SliceId,
    /// The ranges of the node.
    pub ranges: Vec<IpNet>,
}

impl fmt::Display for NodeOutsideRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            checked,
            outside,
            first,
            slice,
            ranges,
        } = self;
        let ranges: Vec<_> = ranges.iter().map(ToString::to_string).collect();
        write!(
            f,
            "{outside} of {checked} endpoints on the node are outside of its pod ranges, {}, for example {first} \
             of EndpointSlice {slice}: the node treats such pods as external clients and masquerades them \
             at cluster IPs; check its spec.podCIDRs, or spec.settings.localDetection of the ProxyConfig \
             if the network assigns addresses differently",
            ranges.join(" and ")
        )
    }
}
