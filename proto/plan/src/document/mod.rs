//! A plan as people and other tools read it: resolved for its node, every key always present,
//! arrays sorted, unknown keys refused.

mod read;
mod write;

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{FrontendKind, Outsiders, Policy, Protocol, ServiceId, Settings, WhenEmpty};

/// The version of the document's shape that is written here.
const VERSION: u32 = 1;

/// One node's plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanDocument {
    /// The version of this shape, 1.
    pub version: u32,
    /// The node's name.
    pub node: Arc<str>,
    /// The node's zone.
    pub zone: Option<Arc<str>>,
    /// The plan's hash, 32 hexadecimal digits.
    pub hash: String,
    /// The node's addresses in the Node object's order.
    pub node_addresses: Vec<IpAddr>,
    /// The ranges of its pods.
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<IpNet>,
    /// The ranges of cluster IPs.
    #[serde(rename = "serviceCIDRs")]
    pub service_cidrs: Vec<IpNet>,
    /// Whether balancers should send traffic here.
    pub eligible: bool,
    /// The settings in force.
    pub settings: Settings,
    /// The Services, by namespace and name.
    pub services: Vec<ServiceDocument>,
    /// This node's own endpoints.
    pub local_endpoints: Vec<LocalEndpointDocument>,
    /// Health check ports of Services.
    pub health_checks: Vec<HealthCheckDocument>,
    /// What was ignored or looks wrong in the objects the plan was made from.
    pub warnings: Vec<WarningDocument>,
}

/// A Service of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceDocument {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Programmed first at start.
    pub boot_critical: bool,
    /// Its own drain deadline in seconds.
    pub drain_seconds: Option<u32>,
    /// Its ports.
    pub ports: Vec<PortDocument>,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PortDocument {
    /// Its name; empty when unnamed.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// Where it answers.
    pub frontends: Vec<FrontendDocument>,
    /// What serves the cluster IPs.
    pub internal: ListDocument,
    /// What serves other frontends.
    pub external: Option<ListDocument>,
    /// Client affinity in seconds.
    pub affinity_seconds: Option<u32>,
    /// The scheduler on this node.
    pub scheduler: Arc<str>,
    /// Who may connect to load-balancer addresses; empty means everybody.
    pub source_ranges: Vec<IpNet>,
}

/// An address and port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FrontendDocument {
    /// What kind of address it is.
    pub kind: FrontendKind,
    /// The address; null for a node port.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
}

/// Backends of both families, and the rules around them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListDocument {
    /// The traffic policy.
    pub policy: Policy,
    /// Whose list it is: `cluster`, `zone/Z` or `node/N`.
    pub scope: String,
    /// The backends.
    pub endpoints: Vec<EndpointDocument>,
    /// What clients meet when there are none.
    pub when_empty: WhenEmpty,
    /// What happens to outsiders.
    pub outsiders: Outsiders,
}

/// A backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointDocument {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Its weight.
    pub weight: u16,
}

/// An endpoint on this node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LocalEndpointDocument {
    /// Its address.
    pub address: IpAddr,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its port.
    pub port: u16,
}

/// A health check port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthCheckDocument {
    /// The Service's namespace.
    pub namespace: Arc<str>,
    /// The Service's name.
    pub name: Arc<str>,
    /// The port.
    pub port: u16,
    /// Distinct ready local addresses.
    pub local_endpoints: FamilyCounts,
}

/// A count for each family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FamilyCounts {
    /// For IPv4.
    #[serde(rename = "IPv4")]
    pub ipv4: u32,
    /// For IPv6.
    #[serde(rename = "IPv6")]
    pub ipv6: u32,
}

/// Something that was ignored or looks wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WarningDocument {
    /// The object, like `Service shop/cart`.
    pub object: String,
    /// A word for tools.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

/// A document that is no plan.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DocumentError {
    /// A shape that this program does not know.
    #[error("version: {found} is not known here; this program reads version {VERSION}")]
    Version {
        /// What the document says.
        found: u32,
    },
    /// The hash is not 32 hexadecimal digits.
    #[error("hash: {text:?} is not 32 hexadecimal digits")]
    Hash {
        /// What the document says.
        text: String,
    },
    /// A scope that does not exist, or is not one of this node's.
    #[error(
        "services: {service}: port {port:?}: scope: {text:?} is neither cluster, nor this node's zone/Z or node/N"
    )]
    Scope {
        /// The Service.
        service: ServiceId,
        /// The port's name.
        port: Arc<str>,
        /// What the document says.
        text: String,
    },
    /// Two lists of one port and scope that differ.
    #[error(
        "services: {service}: port {port:?}: two lists of scope {scope} hold other endpoints; one list serves both"
    )]
    TwoLists {
        /// The Service.
        service: ServiceId,
        /// The port's name.
        port: Arc<str>,
        /// The scope of both.
        scope: String,
    },
    /// Port 0 in a place where a real port belongs.
    #[error("{place}: port 0 is no port; write 1 to 65535")]
    PortZero {
        /// Where in the document.
        place: String,
    },
}
