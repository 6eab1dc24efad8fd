//! ProxyPlanSlice: what many nodes share, in pieces of a size that the API server takes.
#![allow(
    clippy::duplicated_attributes,
    reason = "columns of a table have some words in common"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{HealthCheck, PlannedPort, PlannedService, limit, schema};

/// A piece of the plans: Services of one bucket, for everybody in a scope.
///
/// A node's whole plan is its ProxyPlan, the slices of scope Cluster, those of its zone, and those
/// of scope Node with its name.
#[derive(
    CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "proxy.portolan.dev",
    version = "v1alpha1",
    kind = "ProxyPlanSlice",
    plural = "proxyplanslices",
    shortname = "pps",
    derive = "PartialEq",
    doc = "A part of the nodes' plans that many nodes share, or that did not fit into a ProxyPlan. For reading whole plans with plain kubectl; nodes do not read it. The controller writes all of it, if spec.publish.shared of the ProxyConfig says so, and puts right what others change.",
    printcolumn(
        name = "Scope",
        type_ = "string",
        json_path = ".spec.scope.kind",
        description = "Who uses it: every node, those of a zone, or one."
    ),
    printcolumn(
        name = "Of",
        type_ = "string",
        json_path = ".spec.scope.name",
        description = "The zone or the node."
    ),
    printcolumn(
        name = "Bucket",
        type_ = "integer",
        json_path = ".spec.bucket",
        description = "Which 256th of the Services."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ProxyPlanSliceSpec {
    /// Which nodes use it.
    pub scope: SliceScope,
    /// Which 256th of the Services it holds, 0 to 255: the top 8 bits of xxh3-64 of the text
    /// `head/NAMESPACE/NAME`. A change of a Service changes the slices of one bucket only. Absent with
    /// scope Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 255))]
    pub bucket: Option<u8>,
    /// Its place among the slices of the same scope and bucket, from 0: each holds at most about
    /// 100 kB.
    #[schemars(range(min = 0))]
    pub part: u32,
    /// Services as the nodes of the scope see them. A zone that sees a Service differently from the
    /// rest of the cluster has it in a slice of its own, which goes before that of the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::SERVICES))]
    pub heads: Vec<SliceHead>,
    /// Endpoints of Services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::LISTS))]
    pub lists: Vec<SliceList>,
    /// With scope Node: Services that did not fit into `spec.services` of the node's ProxyPlan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::SERVICES))]
    pub services: Vec<PlannedService>,
    /// With scope Node: health check ports that did not fit into the node's ProxyPlan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::HEALTH_CHECKS))]
    pub health_checks: Vec<HealthCheck>,
}

/// Which nodes use a slice.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct SliceScope {
    /// Cluster: every node. Zone: the nodes of the zone `name`. Node: the node `name` alone.
    #[schemars(schema_with = "schema::choice::<SliceScopeKind>")]
    pub kind: SliceScopeKind,
    /// The zone or the node; absent with kind Cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = limit::NAME))]
    pub name: String,
}

/// What kind of group uses a slice.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum SliceScopeKind {
    /// Every node.
    #[default]
    Cluster,
    /// The nodes of a zone.
    Zone,
    /// One node.
    Node,
}

/// A Service as many nodes see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SliceHead {
    /// The namespace of the Service.
    #[schemars(length(max = limit::LABEL))]
    pub namespace: String,
    /// The name of the Service.
    #[schemars(length(max = limit::NAME))]
    pub name: String,
    /// Nodes program it before everything else when they start; absent means false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub boot_critical: bool,
    /// How long an endpoint that left the cluster may keep its connections, in seconds, by annotation;
    /// absent leaves it to the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub drain_seconds: Option<u32>,
    /// The IPVS scheduler, by annotation; absent leaves it to the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 15))]
    pub scheduler: Option<String>,
    /// Its ports. Scopes `zone` and `node` stand for the zone and the name of whichever node reads it.
    #[schemars(length(max = limit::PORTS))]
    pub ports: Vec<PlannedPort>,
    /// How many more ports it has that did not fit here.
    #[serde(default, skip_serializing_if = "crate::planned::is_zero")]
    pub ports_omitted: u32,
}

/// Endpoints of one port of a Service, in one family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SliceList {
    /// The namespace of the Service.
    #[schemars(length(max = limit::LABEL))]
    pub namespace: String,
    /// The name of the Service.
    #[schemars(length(max = limit::NAME))]
    pub name: String,
    /// The name of the port; absent for a single unnamed one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = limit::LABEL))]
    pub port: String,
    /// The family of the addresses.
    #[schemars(schema_with = "schema::choice::<Family>")]
    pub family: Family,
    /// The endpoints as address and port, in ascending order. A long list goes on in the next part.
    #[schemars(length(max = limit::ENDPOINTS), inner(length(max = 80)))]
    pub endpoints: Vec<String>,
}

/// An IP family.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum Family {
    /// IPv4.
    #[serde(rename = "IPv4")]
    Ipv4,
    /// IPv6.
    #[serde(rename = "IPv6")]
    Ipv6,
}
