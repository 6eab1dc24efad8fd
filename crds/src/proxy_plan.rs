//! ProxyPlan: what is particular to one node.
#![allow(
    clippy::duplicated_attributes,
    reason = "columns of a table have some words in common"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{HealthCheck, PlannedService, ProxyPlanStatus, Warning, limit};

/// What this node must program that other nodes do not, and how large its whole plan is.
///
/// What it shares with other nodes is in the ProxyPlanSlices of scope Cluster and of its zone
/// (`kubectl get proxyplanslices`), or is printed by `portolan-controller plan` from what `kubectl get` prints.
#[derive(
    CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "proxy.portolan.dev",
    version = "v1alpha1",
    kind = "ProxyPlan",
    plural = "proxyplans",
    shortname = "pp",
    status = "ProxyPlanStatus",
    derive = "PartialEq",
    doc = "What one Node must program for Services, and whether it has. There is one for each Node, of the same name. The controller writes all of it and puts right what others change; nodes do not read it (they are told over a stream), so deleting or editing it does no harm. It is written at most every 30 s for a node, less often in large clusters: `status.heartbeatTime` tells how fresh the status is.",
    printcolumn(
        name = "Zone",
        type_ = "string",
        json_path = ".spec.zone",
        description = "The Node's zone."
    ),
    printcolumn(
        name = "Services",
        type_ = "integer",
        json_path = ".spec.counts.services",
        description = "Services that the node serves."
    ),
    printcolumn(
        name = "Local",
        type_ = "integer",
        json_path = ".spec.counts.localEndpoints",
        description = "Endpoints of Services that run on the node."
    ),
    printcolumn(
        name = "Settings",
        type_ = "string",
        json_path = ".spec.settingsRevision",
        description = "Which settings are in force on the node."
    ),
    printcolumn(
        name = "Applied",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Applied\")].status",
        description = "Whether the kernel of the node has what the node was sent last."
    ),
    printcolumn(
        name = "Lag",
        type_ = "string",
        json_path = ".status.lag",
        description = "From the making of the last batch to the node's word that it is in the kernel."
    ),
    printcolumn(
        name = "Healthy",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Healthy\")].status",
        description = "Whether the agent is connected and nothing fails on the node."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ProxyPlanSpec {
    /// The Node's zone, by its label `topology.kubernetes.io/zone`; absent when it has none, and then
    /// hints for zones are ignored on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::LABEL))]
    pub zone: Option<String>,
    /// Which settings are in force on the node: name and generation of the ProxyConfig, like
    /// `default-5`, or a hash of the settings while the controller cannot tell their generation.
    #[schemars(length(max = limit::NAME))]
    pub settings_revision: String,
    /// How much the node serves. Figures that only follow the rest of the cluster are brought up to
    /// date at most every 5 minutes.
    pub counts: PlanCounts,
    /// Services that this node serves in its own way: it has endpoints of a Service with a traffic
    /// policy Local, or endpoints are meant for this node by a hint. At most about 100 kB: `overflow`
    /// tells where the rest is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::SERVICES))]
    pub services: Vec<PlannedService>,
    /// Health check ports (`spec.healthCheckNodePort`) of Services that have endpoints on this node.
    /// Nodes without endpoints have the port too, and answer that they have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::HEALTH_CHECKS))]
    pub health_checks: Vec<HealthCheck>,
    /// What topology hints do on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    /// What was ignored or looks wrong in the Node object: the first 20. `counts.warnings` says how
    /// many there are in all. Warnings about Services and EndpointSlices are in the status of the
    /// ProxyConfig `default`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::PLAN_WARNINGS))]
    pub warnings: Vec<Warning>,
    /// What did not fit into this object; absent when everything did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflow: Option<Overflow>,
}

/// How much a node serves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanCounts {
    /// Services that the node serves.
    pub services: u32,
    /// Addresses with ports on which they answer; a node port counts once.
    pub frontends: u32,
    /// Endpoints that serve them on this node, those of each port and family counted by themselves.
    pub endpoints: u32,
    /// Endpoints of Services that run on this node, ready or not.
    pub local_endpoints: u32,
    /// Warnings about the Node in all, those of `warnings` included.
    pub warnings: u32,
}

/// What topology hints do on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// Services of which this node uses only the endpoints that hints give to it or its zone.
    pub hinted_services: u32,
    /// Services that have hints which are ignored on this node, so that it uses all endpoints, and
    /// why: the first 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::IGNORED_HINTS))]
    pub ignored_hints: Vec<IgnoredHints>,
    /// How many more there are.
    #[serde(default, skip_serializing_if = "crate::planned::is_zero")]
    pub ignored_hints_omitted: u32,
}

/// A Service whose hints are ignored on a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IgnoredHints {
    /// Namespace and name of the Service, like `shop/search`.
    #[schemars(length(max = 320))]
    pub service: String,
    /// Why, as a sentence.
    #[schemars(length(max = limit::SENTENCE))]
    pub reason: String,
}

/// What did not fit into a ProxyPlan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overflow {
    /// Services of `spec.services` that did not fit.
    pub services: u32,
    /// Health check ports of `spec.healthChecks` that did not fit.
    pub health_checks: u32,
    /// How many ProxyPlanSlices of scope Node hold them; 0 when none do.
    pub slices: u32,
    /// Where to look, as a sentence.
    #[schemars(length(max = limit::SENTENCE))]
    pub note: String,
}
