//! The document of a difference, for tools: every key always present, arrays sorted.

use std::net::IpAddr;

use portolan_plan::{ExternalClients, Family, FrontendKind, Protocol};
use serde::Serialize;

/// What would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DifferenceDocument {
    /// The version of this shape, 1.
    pub version: u32,
    /// The manifests compared with, as named by the user.
    pub diff: Option<String>,
    /// The zones assumed to be lost.
    pub lost_zones: Vec<String>,
    /// The nodes assumed to be lost.
    pub lost_nodes: Vec<String>,
    /// The node asked about; null for the whole cluster.
    pub node: Option<String>,
    /// Counts of differences.
    pub summary: SummaryDocument,
    /// Services that differ, by namespace and name.
    pub services: Vec<ServiceChangeDocument>,
    /// Nodes that are new, gone or changed. Nodes with the same differences share an entry.
    pub nodes: Vec<NodeChangeDocument>,
    /// Limits of the comparison.
    pub notes: Vec<String>,
}

/// Counts of differences.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SummaryDocument {
    /// Services now.
    pub services_before: usize,
    /// Services after the change.
    pub services_after: usize,
    /// Nodes now.
    pub nodes_before: usize,
    /// Nodes after the change.
    pub nodes_after: usize,
    /// Services that differ.
    pub services: usize,
    /// Of these, Services left without any endpoint.
    pub left_with_nothing: usize,
    /// Other Services left without endpoints at some of their ports.
    pub left_in_part: usize,
    /// Other Services left without endpoints on some nodes.
    pub left_on_some_nodes: usize,
    /// Nodes on which Services differ, among those present before and after.
    pub nodes: ExtentDocument,
}

/// A set of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExtentDocument {
    /// Number of nodes.
    pub count: usize,
    /// Total number of nodes.
    pub of: usize,
    /// The zones of these nodes; null for nodes without a zone.
    pub zones: Vec<ZoneShareDocument>,
    /// The first ten names in order.
    pub names: Vec<String>,
}

/// The nodes of one zone in a set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ZoneShareDocument {
    /// The zone.
    pub zone: Option<String>,
    /// Number of nodes.
    pub count: usize,
    /// Total number of nodes in the zone.
    pub of: usize,
}

/// Whether something is new, gone or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ChangeKind {
    /// Exists only after the change.
    New,
    /// Exists only now.
    Gone,
    /// Exists before and after, and differs.
    Changed,
}

/// A Service that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceChangeDocument {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether it is new, gone or changed.
    pub change: ChangeKind,
    /// Had endpoints that served clients, and would have none.
    pub left_with_nothing: bool,
    /// Ports left without endpoints, if other ports keep some.
    pub empty_ports: Vec<PortFamilyDocument>,
    /// Nodes on which a port has endpoints now and would have none.
    pub emptied: ExtentDocument,
    /// Topology hints are in force for it, before or after.
    pub hints_in_force: bool,
    /// Nodes on which it differs.
    pub nodes: ExtentDocument,
    /// Changed frontends.
    pub frontends: FrontendsDocument,
    /// Changed endpoints, over all lists.
    pub endpoints: Vec<EndpointsDocument>,
    /// Changed policies, affinity, scheduler and the like.
    pub terms: Vec<TermDocument>,
    /// Changed lists, by the nodes they serve. Nodes with the same change share an entry.
    pub served: Vec<ServedChangeDocument>,
    /// Nodes whose own endpoints differ in readiness, or in what health checks report about them.
    pub own_endpoints: ExtentDocument,
}

/// A port in one family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortFamilyDocument {
    /// The port's name; empty for a single unnamed one.
    pub port: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// The family.
    pub family: Family,
}

/// Added and removed frontends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FrontendsDocument {
    /// Added frontends.
    pub added: Vec<PortFrontendDocument>,
    /// Removed frontends.
    pub removed: Vec<PortFrontendDocument>,
}

/// A frontend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortFrontendDocument {
    /// The name of its port.
    pub name: String,
    /// The protocol.
    pub protocol: Protocol,
    /// The kind of address.
    pub kind: FrontendKind,
    /// The address; null for a node port.
    pub address: Option<IpAddr>,
    /// The port number.
    pub port: u16,
}

/// The endpoints of a port in one family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndpointsDocument {
    /// The port and family.
    #[serde(flatten)]
    pub port: PortFamilyDocument,
    /// Endpoints now.
    pub before: usize,
    /// Endpoints after the change.
    pub after: usize,
    /// Added endpoints.
    pub added: SomeEndpointsDocument,
    /// Removed endpoints.
    pub removed: SomeEndpointsDocument,
}

/// Endpoints: their number, and the first few.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SomeEndpointsDocument {
    /// Number of endpoints.
    pub count: usize,
    /// The first ten, as address and port.
    pub first: Vec<String>,
}

/// A changed term.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TermDocument {
    /// The port's name; null for the whole Service.
    pub port: Option<String>,
    /// The term, spelled as in the plan's document.
    pub term: String,
    /// The value now; null if unset.
    pub before: Option<String>,
    /// The value after the change.
    pub after: Option<String>,
}

/// The lists that serve some nodes, before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServedChangeDocument {
    /// The port and family.
    #[serde(flatten)]
    pub port: PortFamilyDocument,
    /// The clients' frontends: `All`, `Internal` (cluster IPs), `External` (all others).
    pub clients: &'static str,
    /// The list now.
    pub before: ServedDocument,
    /// The list after the change. If equal to `before`, the list has other endpoints.
    pub after: ServedDocument,
    /// The nodes.
    pub nodes: ExtentDocument,
}

/// A list that serves a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServedDocument {
    /// The list: `cluster`, `zone/ZONE`, `node` if hints name the node, `local` for the node's own endpoints under
    /// policy Local.
    pub scope: String,
    /// Number of endpoints in it.
    pub endpoints: usize,
    /// The treatment of external clients.
    pub external_clients: ExternalClients,
}

/// Nodes that are new, gone, or have the same differences.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeChangeDocument {
    /// Whether they are new, gone or changed.
    pub change: ChangeKind,
    /// The differing fields.
    pub fields: Vec<FieldDocument>,
    /// The nodes: those before the change if they are gone, else those after.
    pub nodes: ExtentDocument,
}

/// A changed field of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldDocument {
    /// Its path in the plan's document.
    pub field: String,
    /// The value now; null if unset.
    pub before: Option<String>,
    /// The value after the change.
    pub after: Option<String>,
}
