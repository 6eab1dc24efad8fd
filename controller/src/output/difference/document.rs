//! A difference for tools: every key always present, arrays sorted.

use std::net::IpAddr;

use portolan_plan::{Family, FrontendKind, Outsiders, Protocol};
use serde::Serialize;

/// What would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DifferenceDocument {
    /// 1.
    pub version: u32,
    /// The manifests that are compared with, as they were named.
    pub diff: Option<String>,
    /// The zones that are imagined to be lost.
    pub lost_zones: Vec<String>,
    /// The nodes that are imagined to be lost.
    pub lost_nodes: Vec<String>,
    /// The node that was asked about; null for the whole cluster.
    pub node: Option<String>,
    /// How much differs.
    pub summary: SummaryDocument,
    /// Services that differ, by namespace and name.
    pub services: Vec<ServiceChangeDocument>,
    /// Nodes that are new, gone or changed; those that differ alike are one entry.
    pub nodes: Vec<NodeChangeDocument>,
    /// What to keep in mind.
    pub notes: Vec<String>,
}

/// How much differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SummaryDocument {
    /// How many Services there are now.
    pub services_before: usize,
    /// How many there would be.
    pub services_after: usize,
    /// How many nodes there are now.
    pub nodes_before: usize,
    /// How many there would be.
    pub nodes_after: usize,
    /// How many Services differ.
    pub services: usize,
    /// How many of them would be left with nothing.
    pub left_with_nothing: usize,
    /// How many others would be left with nothing at some of their ports.
    pub left_in_part: usize,
    /// How many others would be left with nothing on some nodes.
    pub left_on_some_nodes: usize,
    /// On which nodes Services differ, of those that are there both times.
    pub nodes: ExtentDocument,
}

/// Some nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExtentDocument {
    /// How many.
    pub count: usize,
    /// Of how many.
    pub of: usize,
    /// The zones they are in; null for nodes without one.
    pub zones: Vec<ZoneShareDocument>,
    /// The first ten by name.
    pub names: Vec<String>,
}

/// Some nodes of a zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ZoneShareDocument {
    /// The zone.
    pub zone: Option<String>,
    /// How many.
    pub count: usize,
    /// Of how many.
    pub of: usize,
}

/// Whether something is new, gone or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ChangeKind {
    /// It would be new.
    New,
    /// It would be gone.
    Gone,
    /// It would change.
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
    /// Endpoints served somebody, and none would serve anybody.
    pub left_with_nothing: bool,
    /// Ports of which this is so, where others keep endpoints.
    pub empty_ports: Vec<PortFamilyDocument>,
    /// Nodes where something serves a port, and nothing would any more.
    pub emptied: ExtentDocument,
    /// Topology hints are in force for it, now or then.
    pub hints_in_force: bool,
    /// On which nodes it differs.
    pub nodes: ExtentDocument,
    /// Where it answers.
    pub frontends: FrontendsDocument,
    /// What serves it, in whatever list.
    pub endpoints: Vec<EndpointsDocument>,
    /// Policies, affinity, scheduler and the like.
    pub terms: Vec<TermDocument>,
    /// What serves nodes, where that differs; nodes that fare alike are one entry.
    pub served: Vec<ServedChangeDocument>,
    /// Nodes whose own endpoints differ, ready or not, or what balancers hear of them.
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

/// Frontends that come and go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FrontendsDocument {
    /// Those that come.
    pub added: Vec<PortFrontendDocument>,
    /// Those that go.
    pub removed: Vec<PortFrontendDocument>,
}

/// A frontend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortFrontendDocument {
    /// The name of its port.
    pub name: String,
    /// The protocol.
    pub protocol: Protocol,
    /// What kind of address it is.
    pub kind: FrontendKind,
    /// The address; null for a node port.
    pub address: Option<IpAddr>,
    /// The number.
    pub port: u16,
}

/// The endpoints of a port in one family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndpointsDocument {
    /// Which port and family.
    #[serde(flatten)]
    pub port: PortFamilyDocument,
    /// How many there are now.
    pub before: usize,
    /// How many there would be.
    pub after: usize,
    /// Those that come.
    pub added: SomeEndpointsDocument,
    /// Those that go.
    pub removed: SomeEndpointsDocument,
}

/// Endpoints, and the first few of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SomeEndpointsDocument {
    /// How many.
    pub count: usize,
    /// The first ten, as address and port.
    pub first: Vec<String>,
}

/// A term that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TermDocument {
    /// The port's name; null for the whole Service.
    pub port: Option<String>,
    /// The term, as the plan's document spells it.
    pub term: String,
    /// What it is now; null where nothing is said.
    pub before: Option<String>,
    /// What it would be.
    pub after: Option<String>,
}

/// What serves some nodes, now and then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServedChangeDocument {
    /// Which port and family.
    #[serde(flatten)]
    pub port: PortFamilyDocument,
    /// Whose connections: `All`, `Internal` (to cluster IPs), `External` (to all other frontends).
    pub clients: &'static str,
    /// Now.
    pub before: ServedDocument,
    /// Then. If it is equal, other endpoints are in the list.
    pub after: ServedDocument,
    /// On which nodes.
    pub nodes: ExtentDocument,
}

/// What serves a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServedDocument {
    /// Whose list: `cluster`, `zone/ZONE`, `node` for what hints make for the node, `local` for its
    /// own endpoints under a policy Local.
    pub scope: String,
    /// How many endpoints are in it.
    pub endpoints: usize,
    /// What becomes of clients that are neither the node nor one of its pods.
    pub outsiders: Outsiders,
}

/// Nodes that are new, gone, or differ alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeChangeDocument {
    /// Whether they are new, gone or changed.
    pub change: ChangeKind,
    /// What differs of them.
    pub fields: Vec<FieldDocument>,
    /// Which nodes: of those now if they are gone, else of those then.
    pub nodes: ExtentDocument,
}

/// A field of a node that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldDocument {
    /// Its path in the plan's document.
    pub field: String,
    /// What it is now; null where there is nothing.
    pub before: Option<String>,
    /// What it would be.
    pub after: Option<String>,
}
