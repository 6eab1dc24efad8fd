//! An explanation as tools read it: every key always present, arrays sorted, unknown keys refused.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_plan::{
    Family, FamilyCounts, FrontendDocument, Outsiders, Policy, Protocol, WarningDocument, WhenEmpty,
};
use serde::{Deserialize, Serialize};

/// The version of the document's shape that is written here.
pub(super) const VERSION: u32 = 1;

/// What a node makes of a Service, and why.
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
    /// The client that was asked about; null for all kinds of them.
    pub from: Option<FromDocument>,
    /// Why the Service is not served at all; null when it is.
    pub not_served: Option<ReasonDocument>,
    /// Programmed first at start.
    pub boot_critical: bool,
    /// What picks among endpoints; null when the Service is not served.
    pub scheduler: Option<SchedulerDocument>,
    /// What the health check port tells balancers; null without one.
    pub health_check: Option<HealthDocument>,
    /// How many EndpointSlices name the Service.
    pub endpoint_slices: usize,
    /// The ports, in the Service's order.
    pub ports: Vec<PortDocument>,
    /// What was ignored or looks wrong in the Service and its slices.
    pub warnings: Vec<WarningDocument>,
}

/// A reason for tools and for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReasonDocument {
    /// A word for tools.
    pub reason: String,
    /// Words for people.
    pub message: String,
}

/// A client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FromDocument {
    /// Its address, if it was given.
    pub address: Option<IpAddr>,
    /// What kind of client it is.
    pub client: ClientKind,
    /// What kind the node takes it for.
    pub taken_for: ClientKind,
    /// How that was found.
    pub message: String,
}

/// A kind of client, as seen from the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ClientKind {
    /// A pod of the node.
    Pod,
    /// A pod of another node.
    OtherPod,
    /// The node itself.
    Node,
    /// Anybody else.
    Outside,
}

/// A scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerDocument {
    /// Its name.
    pub name: Arc<str>,
    /// `annotation` or `settings`: who asked for it.
    pub from: String,
}

/// A health check port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthDocument {
    /// The port.
    pub port: u16,
    /// Distinct ready addresses on the node; with none in both families it says no.
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
    /// Where the node answers.
    pub frontends: Vec<FrontendDocument>,
    /// Where it does not, though the Service asks for it.
    pub absent: Vec<ReasonDocument>,
    /// Client affinity in seconds.
    pub affinity_seconds: Option<u32>,
    /// Who may connect to load-balancer addresses; empty means everybody.
    pub source_ranges: Vec<IpNet>,
    /// What serves it.
    pub lists: Vec<ListDocument>,
    /// What slices say in vain for this port.
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

/// What serves a group of frontends in one family.
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
    /// Why that one.
    pub because: ReasonDocument,
    /// What becomes of topology hints; null without any.
    pub hints: Option<HintsDocument>,
    /// What clients meet when it is empty.
    pub when_empty: WhenEmpty,
    /// What happens to outsiders.
    pub outsiders: Outsiders,
    /// Every endpoint of the port and family.
    pub endpoints: Vec<EndpointDocument>,
    /// What clients meet.
    pub clients: Vec<TreatmentDocument>,
    /// Whether the source ranges let the client connect to load-balancer addresses; null where there
    /// is no such address, or the client's is not known.
    pub admitted: Option<bool>,
    /// What other nodes have.
    pub elsewhere: Vec<ElsewhereDocument>,
}

/// What becomes of topology hints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HintsDocument {
    /// `node` or `zone`, whatever hints in force name; null when they are ignored.
    pub used: Option<String>,
    /// Words for people.
    pub message: String,
}

/// An endpoint, and whether it is in the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointDocument {
    /// Its address.
    pub address: IpAddr,
    /// Where it listens.
    pub port: u16,
    /// The node it runs on.
    pub node: Option<Arc<str>>,
    /// The zone it runs in.
    pub zone: Option<Arc<str>>,
    /// The EndpointSlice that is believed about it, as `NAMESPACE/NAME`.
    pub slice: String,
    /// Whether it is in the list.
    #[serde(rename = "in")]
    pub is_in: bool,
    /// A word for tools.
    pub reason: String,
    /// Words for people.
    pub message: String,
}

/// What a kind of client meets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreatmentDocument {
    /// The client.
    pub client: ClientKind,
    /// Whether it is served.
    pub reach: ReachKind,
    /// What the endpoint sees of it; null when it is not served.
    pub source: Option<SourceDocument>,
    /// Words for people.
    pub message: String,
}

/// Whether a client is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReachKind {
    /// An endpoint answers.
    Served,
    /// It is refused at once.
    Refused,
    /// Its packets are dropped.
    Dropped,
}

/// What an endpoint sees as the client's address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceDocument {
    /// Whether it is the node's.
    pub masqueraded: bool,
    /// A word for tools.
    pub reason: String,
}

/// Other nodes that are alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ElsewhereDocument {
    /// The list they use: `cluster`, `zone/Z`, `node` or `local` (each its own), or `none`.
    pub scope: String,
    /// What happens to outsiders there.
    pub outsiders: Outsiders,
    /// How many nodes.
    pub nodes: usize,
    /// The first of them, a few.
    pub first_nodes: Vec<Arc<str>>,
    /// The fewest endpoints that one of them uses.
    pub fewest_endpoints: usize,
    /// The most.
    pub most_endpoints: usize,
    /// Words for people.
    pub message: String,
}

/// What one slice says in vain, for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApartDocument {
    /// The EndpointSlice, as `NAMESPACE/NAME`.
    pub slice: String,
    /// A word for tools.
    pub reason: String,
    /// Words for people.
    pub message: String,
    /// The addresses of the endpoints.
    pub endpoints: Vec<IpAddr>,
}
