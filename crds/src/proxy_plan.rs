//! ProxyPlan: the part of the plan that is specific to one node.
#![allow(
    clippy::duplicated_attributes,
    reason = "columns of a table share attributes"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{HealthCheck, PlannedService, ProxyPlanStatus, Warning, limit};

/// The part of the node's plan that other nodes do not share, and counts of the whole plan.
///
/// The shared parts are in the ProxyPlanSlices of scope Cluster and of the node's zone (`kubectl get
/// proxyplanslices`). `kubectl proxyplan show NODE` prints the whole plan and its hash.
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
    doc = "What one Node must program for Services, and whether it has done so. Each Linux Node has a ProxyPlan of the same name. The controller writes all of it and reverts changes by others. Nodes do not read it (agents receive plans directly from a controller), so deleting or editing it does no harm. `spec` is written at most every 30 s for each node. `status` is written within seconds when a condition changes, and otherwise every 5 minutes; large clusters may delay both. `status.heartbeatTime` is when the status was written.",
    printcolumn(
        name = "Zone",
        type_ = "string",
        json_path = ".spec.zone",
        description = "The zone of the Node."
    ),
    printcolumn(
        name = "Services",
        type_ = "integer",
        json_path = ".spec.counts.services",
        description = "Number of Services that the node serves."
    ),
    printcolumn(
        name = "Local",
        type_ = "integer",
        json_path = ".spec.counts.localEndpoints",
        description = "Number of endpoints of Services on the node."
    ),
    printcolumn(
        name = "Settings",
        type_ = "string",
        json_path = ".spec.settingsRevision",
        description = "The settings that the controller plans for the node."
    ),
    printcolumn(
        name = "Applied",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Applied\")].status",
        description = "Whether the kernel of the node has the plan that the node received last."
    ),
    printcolumn(
        name = "Lag",
        type_ = "string",
        json_path = ".status.lag",
        description = "Time from the creation of the last batch of changes to the node's report that its kernel has it."
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
    /// The zone of the Node, from its label `topology.kubernetes.io/zone`; absent if it has none, and then zone hints
    /// are ignored on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::LABEL_CHARS))]
    pub zone: Option<String>,
    /// The settings that the controller plans for the node: name and generation of the ProxyConfig, such as
    /// `default-5`, or a hash of the settings while the controller does not know their generation.
    /// `status.settingsRevision` names the settings that the kernel has.
    #[schemars(length(max = limit::NAME_CHARS))]
    pub settings_revision: String,
    /// How much the node serves. If nothing else of this object changes, counts are updated at most every 5 minutes.
    pub counts: PlanCounts,
    /// Services that this node serves differently from other nodes: it has endpoints of a Service with a traffic
    /// policy Local, or hints assign endpoints to it. At most 80 KiB; `overflow` says where the rest is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::SERVICES))]
    pub services: Vec<PlannedService>,
    /// Health check ports (`spec.healthCheckNodePort`) of Services with endpoints on this node. Nodes without
    /// endpoints open the port too, and answer 503.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::HEALTH_CHECKS))]
    pub health_checks: Vec<HealthCheck>,
    /// The effect of topology hints on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    /// Ignored or suspicious fields of the Node object: the first 20. `counts.warnings` is the total. Warnings about
    /// Services and EndpointSlices are in the status of the ProxyConfig `default`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::PLAN_WARNINGS))]
    pub warnings: Vec<Warning>,
    /// What did not fit into this object; absent if everything did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflow: Option<Overflow>,
}

/// How much a node serves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanCounts {
    /// Number of Services that the node serves.
    pub services: u32,
    /// Number of frontends of the Services that the node serves: addresses with ports. A node port counts once.
    pub frontends: u32,
    /// Number of endpoints to which this node sends connections to Services, counted for each port and IP family.
    pub endpoints: u32,
    /// Number of endpoints of Services that run on this node, ready or not.
    pub local_endpoints: u32,
    /// Total number of warnings about the Node, including those in `warnings`.
    pub warnings: u32,
}

/// The effect of topology hints on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// Number of Services for which this node uses only the endpoints that hints assign to it or its zone.
    pub hinted_services: u32,
    /// Services whose hints are ignored on this node, so that it uses all endpoints, with the reasons: the first 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::IGNORED_HINTS))]
    pub ignored_hints: Vec<IgnoredHints>,
    /// Number of Services that `ignoredHints` omits.
    #[serde(default, skip_serializing_if = "crate::planned::is_zero")]
    pub ignored_hints_omitted: u32,
}

/// A Service whose hints are ignored on a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IgnoredHints {
    /// Namespace and name of the Service, such as `shop/search`.
    #[schemars(length(max = 320))]
    pub service: String,
    /// The reason, as a sentence.
    #[schemars(length(max = limit::MESSAGE_CHARS))]
    pub reason: String,
}

/// What did not fit into a ProxyPlan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overflow {
    /// Number of Services of `spec.services` that did not fit.
    pub services: u32,
    /// Number of health check ports of `spec.healthChecks` that did not fit.
    pub health_checks: u32,
    /// Number of ProxyPlanSlices of scope Node that contain them; 0 if none do.
    pub slices: u32,
    /// Where to find the rest, as a sentence.
    #[schemars(length(max = limit::MESSAGE_CHARS))]
    pub note: String,
}
