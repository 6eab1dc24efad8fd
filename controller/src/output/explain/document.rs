//! The document of an explanation, for tools: every key always present, arrays sorted, unknown keys rejected.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::{
    ExternalClients, Family, FamilyCounts, FrontendDocument, Policy, Protocol, WarningDocument,
    WhenEmpty,
};
use serde::{Deserialize, Serialize};

/// The current version of the document's shape.
pub(super) const VERSION: u32 = 1;

/// How a node serves a Service, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExplanationDocument {
    /// The version of this shape, 1.
    pub version: u32,
    /// The node's name.
    pub node: Arc<str>,
    /// The node's zone.
    pub zone: Option<Arc<str>>,
    /// The Service's namespace.
    pub namespace: Arc<str>,
    /// The Service's name.
    pub name: Arc<str>,
    /// The client asked about; null for all kinds of clients.
    pub from: Option<FromDocument>,
    /// Why the Service is not served at all; null if it is.
    pub not_served: Option<ReasonDocument>,
    /// Whether the Service is programmed first when the agent starts.
    pub boot_critical: bool,
    /// The scheduler; null if the Service is not served.
    pub scheduler: Option<SchedulerDocument>,
    /// The result of the health check port (`healthCheckNodePort`); null without one.
    pub health_check: Option<HealthDocument>,
    /// Number of EndpointSlices of the Service.
    pub endpoint_slices: usize,
    /// The ports, in the Service's order.
    pub ports: Vec<PortDocument>,
    /// Ignored or suspicious values in the Service and its slices.
    pub warnings: Vec<WarningDocument>,
}

/// A reason as a code and as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReasonDocument {
    /// Code for tools.
    pub reason: String,
    /// Text for people.
    pub message: String,
}

/// A client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FromDocument {
    /// Its address, if one was given.
    pub address: Option<IpAddr>,
    /// The actual kind of client.
    pub client: ClientKind,
    /// The kind that the node's rules take it for.
    pub taken_for: ClientKind,
    /// How the kind was determined.
    pub message: String,
}

/// A kind of client from the node's point of view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ClientKind {
    /// A pod of the node.
    Pod,
    /// A pod of another node.
    OtherPod,
    /// The node itself.
    Node,
    /// Any other client.
    Outside,
}

/// A scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerDocument {
    /// Its name.
    pub name: Arc<str>,
    /// `annotation` or `settings`: where the scheduler was set.
    pub from: String,
}

/// A health check port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthDocument {
    /// The port.
    pub port: u16,
    /// Distinct ready addresses on the node, by family. The check fails if both counts are 0.
    pub local_endpoints: FamilyCounts,
}

/// A port of the Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PortDocument {
    /// Its name; empty when unnamed.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub port: u16,
    /// Where the node serves it.
    pub frontends: Vec<FrontendDocument>,
    /// Frontends that the Service asks for but the node does not serve.
    pub absent: Vec<ReasonDocument>,
    /// Client affinity in seconds.
    pub affinity_seconds: Option<u32>,
    /// Ranges that may connect to load-balancer addresses; empty means all clients.
    pub source_ranges: Vec<IpNet>,
    /// The endpoint lists.
    pub lists: Vec<ListDocument>,
    /// Endpoints in slices that are not used for this port.
    pub apart: Vec<ApartDocument>,
}

/// Which frontends a list serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupKind {
    /// Cluster IPs.
    Internal,
    /// All others.
    External,
}

/// The list that serves a group of frontends in one family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListDocument {
    /// The frontends.
    pub frontends: GroupKind,
    /// The family.
    pub family: Family,
    /// The traffic policy.
    pub policy: Policy,
    /// Whose list it is: `cluster`, `zone/Z` or `node/N`.
    pub scope: String,
    /// Why that list.
    pub because: ReasonDocument,
    /// Whether topology hints are in force; null without any.
    pub hints: Option<HintsDocument>,
    /// The treatment of clients if the list is empty.
    pub when_empty: WhenEmpty,
    /// The treatment of external clients.
    pub external_clients: ExternalClients,
    /// Every endpoint of the port and family.
    pub endpoints: Vec<EndpointDocument>,
    /// The treatment of clients.
    pub clients: Vec<TreatmentDocument>,
    /// Whether the source ranges admit the client to load-balancer addresses; null if there is no such address or the
    /// client's address is unknown.
    pub admitted: Option<bool>,
    /// The lists of other nodes.
    pub elsewhere: Vec<ElsewhereDocument>,
}

/// Whether topology hints are in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HintsDocument {
    /// `node` or `zone`, depending on what the hints in force name; null if hints are ignored.
    pub used: Option<String>,
    /// Text for people.
    pub message: String,
}

/// An endpoint, and whether it is in the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointDocument {
    /// Its address.
    pub address: IpAddr,
    /// The port it listens on.
    pub port: u16,
    /// The node it runs on.
    pub node: Option<Arc<str>>,
    /// The zone it runs in.
    pub zone: Option<Arc<str>>,
    /// The EndpointSlice that defines it, as `NAMESPACE/NAME`.
    pub slice: String,
    /// Whether it is in the list.
    #[serde(rename = "in")]
    pub is_in: bool,
    /// Code for tools.
    pub reason: String,
    /// Text for people.
    pub message: String,
}

/// The treatment of a kind of client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreatmentDocument {
    /// The client.
    pub client: ClientKind,
    /// Whether it is served.
    pub reach: ReachKind,
    /// The source address at the endpoint; null if the client is not served.
    pub source: Option<SourceDocument>,
    /// Text for people.
    pub message: String,
}

/// Whether a client is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReachKind {
    /// An endpoint answers.
    Served,
    /// It is rejected at once.
    Refused,
    /// Its packets are dropped.
    Dropped,
}

/// The source address of a client at the endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceDocument {
    /// Whether it is the node's address.
    pub masqueraded: bool,
    /// Code for tools.
    pub reason: String,
}

/// Other nodes with equal lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ElsewhereDocument {
    /// The list they use: `cluster`, `zone/Z`, `node` or `local` (each its own), or `none`.
    pub scope: String,
    /// The treatment of external clients on these nodes.
    pub external_clients: ExternalClients,
    /// Number of nodes.
    pub nodes: usize,
    /// The first few of them.
    pub first_nodes: Vec<Arc<str>>,
    /// The lowest number of endpoints used on one of them.
    pub fewest_endpoints: usize,
    /// The highest number.
    pub most_endpoints: usize,
    /// Text for people.
    pub message: String,
}

/// Endpoints of one slice that are not used, for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApartDocument {
    /// The EndpointSlice, as `NAMESPACE/NAME`.
    pub slice: String,
    /// Code for tools.
    pub reason: String,
    /// Text for people.
    pub message: String,
    /// The addresses of the endpoints.
    pub endpoints: Vec<IpAddr>,
}
