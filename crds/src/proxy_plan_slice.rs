//! ProxyPlanSlice: the parts of plans that many nodes share, in pieces that fit into an API object.
#![allow(
    clippy::duplicated_attributes,
    reason = "columns of a table share attributes"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{HealthCheck, PlannedPort, PlannedService, limit, schema};

/// A part of the plans: Services of one bucket, for all nodes in a scope.
///
/// The whole plan of a node consists of its ProxyPlan, the slices of scope Cluster, those of its zone, and those of
/// scope Node with its name.
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
    doc = "A part of plans that many nodes share, or that did not fit into a ProxyPlan. For reading whole plans with plain kubectl; nodes do not read it. The controller writes all of it, depending on spec.publish.shared of the ProxyConfig, and reverts changes by others.",
    printcolumn(
        name = "Scope",
        type_ = "string",
        json_path = ".spec.scope.kind",
        description = "The nodes that use the slice: all (Cluster), those of a zone, or one."
    ),
    printcolumn(
        name = "Zone/Node",
        type_ = "string",
        json_path = ".spec.scope.name",
        description = "The zone or the node that uses the slice; empty with scope Cluster."
    ),
    printcolumn(
        name = "Bucket",
        type_ = "integer",
        json_path = ".spec.bucket",
        description = "The bucket of the Services in the slice, 0 to 255: a number derived from namespace and name."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ProxyPlanSliceSpec {
    /// The nodes that use this slice.
    pub scope: SliceScope,
    /// The bucket of the Services in this slice, 0 to 255: a number derived from their namespace and name. A change of
    /// a Service changes the slices of one bucket only. Absent with scope Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 255))]
    pub bucket: Option<u8>,
    /// The index of this slice among those of the same scope and bucket, from 0. Each slice holds at most about 100 kB.
    #[schemars(range(min = 0))]
    pub part: u32,
    /// The Services of this slice with their ports and frontends; their endpoints are in `lists`. If a zone serves a
    /// Service differently from the rest of the cluster, the slice of the zone takes precedence over that of the
    /// cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::SERVICES))]
    pub heads: Vec<SliceHead>,
    /// Endpoints of Services, for each port and IP family.
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

/// The nodes that use a slice.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct SliceScope {
    /// Cluster: all nodes. Zone: the nodes of the zone `name`. Node: only the node `name`.
    #[schemars(schema_with = "schema::choice::<SliceScopeKind>")]
    pub kind: SliceScopeKind,
    /// The zone or the node; absent with kind Cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = limit::NAME_CHARS))]
    pub name: String,
}

/// The kind of scope of a slice.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum SliceScopeKind {
    /// All nodes.
    #[default]
    Cluster,
    /// The nodes of a zone.
    Zone,
    /// One node.
    Node,
}

/// A Service as many nodes serve it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SliceHead {
    /// The namespace of the Service.
    #[schemars(length(max = limit::LABEL_CHARS))]
    pub namespace: String,
    /// The name of the Service.
    #[schemars(length(max = limit::NAME_CHARS))]
    pub name: String,
    /// Nodes program the Service before all other Services when they start; absent means false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub boot_critical: bool,
    /// How long TCP connections to a removed endpoint may continue after it has left the cluster, in seconds, from the
    /// annotation; absent means the value in the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub drain_seconds: Option<u32>,
    /// The IPVS scheduler, from the annotation; absent means the value in the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 15))]
    pub scheduler: Option<String>,
    /// Ports of the Service. Scopes `zone` and `node` stand for the zone and the name of the node that uses the
    /// slice.
    #[schemars(length(max = limit::PORTS))]
    pub ports: Vec<PlannedPort>,
    /// Number of ports that were omitted because of the size limit.
    #[serde(default, skip_serializing_if = "crate::planned::is_zero")]
    pub ports_omitted: u32,
}

/// Endpoints of one port of a Service, in one IP family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SliceList {
    /// The namespace of the Service.
    #[schemars(length(max = limit::LABEL_CHARS))]
    pub namespace: String,
    /// The name of the Service.
    #[schemars(length(max = limit::NAME_CHARS))]
    pub name: String,
    /// The name of the port; absent for a single unnamed port.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = limit::LABEL_CHARS))]
    pub port: String,
    /// The IP family of the addresses.
    #[schemars(schema_with = "schema::choice::<Family>")]
    pub family: Family,
    /// The endpoints as address and port, in ascending order. A long list continues in the next part.
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
