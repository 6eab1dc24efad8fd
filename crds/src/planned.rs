//! Services as plans show them, and the health check ports beside them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{limit, schema};

/// A Service that a node serves in its own way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedService {
    /// The namespace of the Service.
    #[schemars(length(max = limit::LABEL))]
    pub namespace: String,
    /// The name of the Service.
    #[schemars(length(max = limit::NAME))]
    pub name: String,
    /// Why this node serves it in its own way: spec.externalTrafficPolicy or
    /// spec.internalTrafficPolicy of the Service is Local and endpoints run here, or hints give
    /// endpoints to this node. Where several hold, the first of them.
    #[schemars(schema_with = "schema::choice::<Because>")]
    pub because: Because,
    /// Its ports.
    #[schemars(length(max = limit::PORTS))]
    pub ports: Vec<PlannedPort>,
    /// How many more ports it has that did not fit here.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ports_omitted: u32,
}

/// Why a node serves a Service in its own way.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Because {
    /// Outsiders may reach only endpoints of the node.
    ExternalTrafficPolicyLocal,
    /// Clients on the node may reach only endpoints of the node.
    InternalTrafficPolicyLocal,
    /// Endpoints are meant for this node.
    NodeHints,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedPort {
    /// Its name; absent for a single unnamed port.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = limit::LABEL))]
    pub name: String,
    /// Its protocol.
    #[schemars(schema_with = "schema::choice::<Protocol>")]
    pub protocol: Protocol,
    /// Where it answers: the kind of address, the address and the port, like
    /// `LoadBalancer 203.0.113.7:80`. A node port is `NodePort *:30080`: the addresses are the
    /// node's own, by the settings. Of more than 64, the last line says how many are left out.
    #[schemars(length(max = limit::FRONTENDS), inner(length(max = 80)))]
    pub frontends: Vec<String>,
    /// What serves the cluster IPs.
    pub internal: ListUse,
    /// What serves all other frontends; absent when there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ListUse>,
    /// How long a client stays with its endpoint, in seconds, 1 to 86400; absent without affinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub affinity_seconds: Option<u32>,
    /// Who may connect to load balancer addresses; absent means everybody. Of more than 64 ranges,
    /// the last line says how many are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::SOURCE_RANGES), inner(length(max = 43)))]
    pub source_ranges: Vec<String>,
}

/// A transport protocol.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// Which endpoints serve a group of frontends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListUse {
    /// Whose list of endpoints is used: `cluster` (all that are usable), `zone/Z` (those that hints
    /// give to zone Z) or `node/N` (those of, or for, node N). Without a name, as ProxyPlanSlices
    /// have it, the zone or node is that of the reader.
    #[schemars(length(max = 260))]
    pub scope: String,
    /// The endpoints as address and port, where the list belongs to this node alone; lists of the
    /// cluster and of zones are in ProxyPlanSlices. Traffic to a list without endpoints is refused.
    /// Of more than 512, the last line says how many are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::OWN_ENDPOINTS), inner(length(max = 80)))]
    pub endpoints: Option<Vec<String>>,
    /// What happens to clients that are neither the node itself nor one of its pods: Allow serves
    /// them, Drop lets them meet silence, so that a balancer tries another node.
    #[schemars(schema_with = "schema::choice::<Outsiders>")]
    pub outsiders: Outsiders,
    /// How IPv6 is served, where that differs from what `scope` and `outsiders` say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<FamilyUse>,
}

/// How one family is served.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FamilyUse {
    /// Whose list of endpoints is used.
    #[schemars(length(max = 260))]
    pub scope: String,
    /// What happens to clients that are neither the node itself nor one of its pods.
    #[schemars(schema_with = "schema::choice::<Outsiders>")]
    pub outsiders: Outsiders,
}

/// What happens to outsiders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Outsiders {
    /// They are served like everybody.
    #[default]
    Allow,
    /// Their new connections meet silence.
    Drop,
}

/// A health check port that nodes open for load balancers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// The namespace of the Service.
    #[schemars(length(max = limit::LABEL))]
    pub namespace: String,
    /// The name of the Service.
    #[schemars(length(max = limit::NAME))]
    pub name: String,
    /// The port, 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// Distinct addresses of ready endpoints on this node, by family: the port answers 503 where there
    /// is none.
    pub local_endpoints: FamilyCounts,
}

pub(crate) fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A count for each family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FamilyCounts {
    /// IPv4.
    #[serde(rename = "IPv4")]
    pub ipv4: u32,
    /// IPv6.
    #[serde(rename = "IPv6")]
    pub ipv6: u32,
}
