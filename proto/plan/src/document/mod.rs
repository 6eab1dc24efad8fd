//! A plan as a document for people and other tools: resolved for its node, with every key present, sorted arrays, and
//! unknown keys rejected.

mod read;
mod write;

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{ExternalClients, FrontendKind, Policy, Protocol, ServiceId, Settings, WhenEmpty};

/// The version of the document format.
const VERSION: u32 = 1;

/// One node's plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanDocument {
    /// The version of the document format, 1.
    pub version: u32,
    /// The node's name.
    pub node: Arc<str>,
    /// The node's zone.
    pub zone: Option<Arc<str>>,
    /// The plan's hash, 32 hexadecimal digits.
    pub hash: String,
    /// The node's addresses in the Node object's order.
    pub node_addresses: Vec<IpAddr>,
    /// The ranges of its pods' addresses.
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<IpNet>,
    /// The ranges of cluster IPs.
    #[serde(rename = "serviceCIDRs")]
    pub service_cidrs: Vec<IpNet>,
    /// Whether load balancers should send traffic to the node.
    pub eligible: bool,
    /// The settings in force.
    pub settings: Settings,
    /// The Services, by namespace and name.
    pub services: Vec<ServiceDocument>,
    /// This node's own endpoints.
    pub local_endpoints: Vec<LocalEndpointDocument>,
    /// Health check ports of Services.
    pub health_checks: Vec<HealthCheckDocument>,
    /// Warnings about the objects from which the plan was made.
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
    /// Whether it is programmed first at start.
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
    /// The addresses and ports at which clients reach it.
    pub frontends: Vec<FrontendDocument>,
    /// The list that serves the cluster IPs.
    pub internal: ListDocument,
    /// The list that serves all other frontends.
    pub external: Option<ListDocument>,
    /// Client affinity in seconds; null for none.
    pub affinity_seconds: Option<u32>,
    /// The IPVS scheduler on this node.
    pub scheduler: Arc<str>,
    /// The source ranges that may connect to load-balancer addresses; empty allows all.
    pub source_ranges: Vec<IpNet>,
}

/// An address and port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FrontendDocument {
    /// The kind of the address.
    pub kind: FrontendKind,
    /// The address; null for a node port.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
}

/// Backends of both families, and the policies that apply to them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListDocument {
    /// The traffic policy.
    pub policy: Policy,
    /// The scope of the list: `cluster`, `zone/Z` or `node/N`.
    pub scope: String,
    /// The backends.
    pub endpoints: Vec<EndpointDocument>,
    /// What happens to connections if there are none.
    pub when_empty: WhenEmpty,
    /// What happens to connections of external clients.
    pub external_clients: ExternalClients,
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
    /// The number of distinct addresses of ready local endpoints.
    pub local_endpoints: FamilyCounts,
}

/// A count per family.
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

/// A warning about an object that was ignored or looks wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WarningDocument {
    /// The object, like `Service shop/cart`.
    pub object: String,
    /// The reason as one word, for tools.
    pub reason: String,
    /// The message, for people.
    pub message: String,
}

/// The document is not a valid plan.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DocumentError {
    /// The format version is not supported by this program.
    #[error("version: {found} is not supported; this program reads version {VERSION}")]
    Version {
        /// The value in the document.
        found: u32,
    },
    /// The hash is not 32 hexadecimal digits.
    #[error("hash: {text:?} is not 32 hexadecimal digits")]
    Hash {
        /// The value in the document.
        text: String,
    },
    /// The scope does not exist, or is not one of this node's.
    #[error(
        "services: {service}: port {port:?}: scope: {text:?} is neither cluster, nor this node's zone/Z or node/N"
    )]
    Scope {
        /// The Service.
        service: ServiceId,
        /// The port's name.
        port: Arc<str>,
        /// The value in the document.
        text: String,
    },
    /// Two lists of the same port and scope differ.
    #[error(
        "services: {service}: port {port:?}: two lists of scope {scope} have different endpoints; write the same endpoints in both"
    )]
    TwoLists {
        /// The Service.
        service: ServiceId,
        /// The port's name.
        port: Arc<str>,
        /// The scope of both.
        scope: String,
    },
    /// A port is 0.
    #[error("{place}: port 0 is not a valid port; write 1 to 65535")]
    PortZero {
        /// The path in the document.
        place: String,
    },
    /// The ports of a Service have different source ranges.
    #[error(
        "{place}: not the source ranges of the Service; all its ports with a load-balancer address have the same ranges, \
         and other ports have none"
    )]
    SourceRanges {
        /// The path in the document.
        place: String,
    },
}
