//! Services in plans, and health check ports.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{limit, schema};

/// A Service that this node serves differently from other nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedService {
    /// The namespace of the Service.
    #[schemars(length(max = limit::LABEL_CHARS))]
    pub namespace: String,
    /// The name of the Service.
    #[schemars(length(max = limit::NAME_CHARS))]
    pub name: String,
    /// Why this node serves it differently: spec.externalTrafficPolicy or spec.internalTrafficPolicy of the Service
    /// is Local and endpoints run on the node, or hints assign endpoints to the node. If several apply, the first of
    /// them.
    #[schemars(schema_with = "schema::choice::<Because>")]
    pub because: Because,
    /// Ports of the Service.
    #[schemars(length(max = limit::PORTS))]
    pub ports: Vec<PlannedPort>,
    /// Number of ports that were omitted because of the size limit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ports_omitted: u32,
}

/// Why a node serves a Service differently from other nodes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Because {
    /// External traffic reaches only endpoints of the node.
    ExternalTrafficPolicyLocal,
    /// Internal traffic reaches only endpoints of the node.
    InternalTrafficPolicyLocal,
    /// Hints assign endpoints to this node.
    NodeHints,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedPort {
    /// The name of the port; absent for a single unnamed port.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = limit::LABEL_CHARS))]
    pub name: String,
    /// The protocol of the port.
    #[schemars(schema_with = "schema::choice::<Protocol>")]
    pub protocol: Protocol,
    /// The frontends of the port: the kind of address, the address and the port, such as `LoadBalancer
    /// 203.0.113.7:80`. A node port is `NodePort *:30080`, because the settings select the addresses of the node. If
    /// there are more than 64, the last entry says how many were omitted.
    #[schemars(length(max = limit::FRONTENDS), inner(length(max = 80)))]
    pub frontends: Vec<String>,
    /// The endpoints for the cluster IPs (internal traffic).
    pub internal: ListUse,
    /// The endpoints for external IPs, load balancer addresses and node ports (external traffic); absent if the port
    /// has none of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ListUse>,
    /// Session affinity timeout, in seconds, 1 to 86400; absent without affinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub affinity_seconds: Option<u32>,
    /// Source ranges that may connect to load balancer addresses; absent means all. If there are more than 64, the
    /// last entry says how many were omitted.
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

/// The endpoints that serve a group of frontends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListUse {
    /// The endpoint list: `cluster` (all ready endpoints; if there are none, the terminating ones that still serve),
    /// `zone/Z` (those that hints assign to zone Z) or `node/N` (those on node N, or that hints assign to it). In
    /// `heads` of a ProxyPlanSlice the name is omitted: `zone` and `node` stand for the zone and the name of the node
    /// that uses the slice.
    #[schemars(length(max = 260))]
    pub scope: String,
    /// The endpoints as address and port, if `scope` is a node with its name; the lists of the cluster and of zones are
    /// in ProxyPlanSlices. New connections to an empty list are refused. If there are more than 512, the last entry
    /// says how many were omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::OWN_ENDPOINTS), inner(length(max = 80)))]
    pub endpoints: Option<Vec<String>>,
    /// How external clients are handled, that is, clients that are neither the node itself nor one of its pods.
    /// Allow: they are served. Drop: their packets are dropped without an answer, so that a load balancer tries
    /// another node.
    #[schemars(schema_with = "schema::choice::<ExternalClients>")]
    pub external_clients: ExternalClients,
    /// How IPv6 is served, if it differs from `scope` and `externalClients`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<FamilyUse>,
}

/// How one IP family is served.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FamilyUse {
    /// The endpoint list of this IP family: `cluster`, `zone/Z` or `node/N`.
    #[schemars(length(max = 260))]
    pub scope: String,
    /// How external clients are handled in this IP family.
    #[schemars(schema_with = "schema::choice::<ExternalClients>")]
    pub external_clients: ExternalClients,
}

/// How external clients are handled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExternalClients {
    /// They are served like all others.
    #[default]
    Allow,
    /// Their new connections are dropped without an answer.
    Drop,
}

/// A health check port that nodes open for load balancers (`healthCheckNodePort`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// The namespace of the Service.
    #[schemars(length(max = limit::LABEL_CHARS))]
    pub namespace: String,
    /// The name of the Service.
    #[schemars(length(max = limit::NAME_CHARS))]
    pub name: String,
    /// The port, 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// Number of distinct addresses of ready endpoints on this node, by IP family. The port answers 503 if there are
    /// none.
    pub local_endpoints: FamilyCounts,
}

pub(crate) fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A count for each IP family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FamilyCounts {
    /// IPv4.
    #[serde(rename = "IPv4")]
    pub ipv4: u32,
    /// IPv6.
    #[serde(rename = "IPv6")]
    pub ipv6: u32,
}
