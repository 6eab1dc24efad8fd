//! ProxyConfig: the settings of the cluster, and their status.
#![allow(
    clippy::duplicated_attributes,
    reason = "columns of a table share attributes"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    GuardSpec, GuardStatus, OverrideSpec, RolloutSpec, RolloutStatus, SettingsSpec, Warning, limit,
    schema,
};

/// The desired configuration. All fields are optional: an empty spec means the defaults.
#[derive(
    CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "proxy.portolan.dev",
    version = "v1alpha1",
    kind = "ProxyConfig",
    plural = "proxyconfigs",
    status = "ProxyConfigStatus",
    derive = "PartialEq",
    doc = "Configures Portolan for the whole cluster. There is one, named `default`; the controller creates it with an empty spec if it is missing. You write `spec`, the controller writes `status`. After a change, check the condition Accepted and `warnings` in the status.",
    validation = Rule::new("self.metadata.name == 'default'").message("there is one ProxyConfig, and its name is default: write `name: default`"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].status",
        description = "Whether the controller uses this spec. If not, the message of the condition names the wrong field."
    ),
    printcolumn(
        name = "Nodes",
        type_ = "integer",
        json_path = ".status.counts.nodes",
        description = "Number of Nodes that have a plan."
    ),
    printcolumn(
        name = "Services",
        type_ = "integer",
        json_path = ".status.counts.services",
        description = "Number of Services that this proxy serves."
    ),
    printcolumn(
        name = "Warnings",
        type_ = "integer",
        json_path = ".status.counts.warnings",
        description = "Number of warnings about Services, EndpointSlices and other objects that are not Nodes."
    ),
    printcolumn(
        name = "Revision",
        type_ = "string",
        json_path = ".status.rollout.currentRevision",
        description = "The revision in force: that of all nodes except those that have received the current change."
    ),
    printcolumn(
        name = "Rollout",
        type_ = "string",
        json_path = ".status.rollout.phase",
        description = "The phase of the rollout of a change."
    ),
    printcolumn(
        name = "Wave",
        type_ = "string",
        json_path = ".status.rollout.wave",
        description = "The wave that currently receives the change."
    ),
    printcolumn(
        name = "Guard",
        type_ = "string",
        json_path = ".status.guard.mode",
        description = "Hold or Report during a mass loss of endpoints; see .status.guard."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ProxyConfigSpec {
    /// Settings of all nodes. Omitted fields keep their defaults. A change needs no restart. It reaches nodes in
    /// waves if `spec.rollout` is set, even to `{}`; otherwise it reaches all nodes within seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<SettingsSpec>,
    /// Other settings for some nodes, selected by labels. They are applied in order: if several select a node, the
    /// last one wins. A change is rolled out like one of `spec.settings`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = limit::OVERRIDES),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub overrides: Option<Vec<OverrideSpec>>,
    /// How a change of `spec.settings`, of `spec.overrides` or of agents (by `helm upgrade`) reaches nodes. An empty
    /// object (`rollout: {}`) means waves with the defaults. If omitted, all nodes get a change at once, and agents
    /// are replaced by the update strategy of their DaemonSet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutSpec>,
    /// The reaction to a mass loss of endpoints. If omitted, a loss is reported (`guard: {mode: Report}`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<GuardSpec>,
    /// What the controller writes to ProxyPlans and ProxyPlanSlices, and how fast. Nodes do not read these objects;
    /// they are for users, tools and audits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish: Option<PublishSpec>,
}

/// What the controller publishes for kubectl.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PublishSpec {
    /// Whether the parts of plans that nodes share are written as ProxyPlanSlices. Auto: in clusters of up to 2000
    /// Services. Always: in clusters of any size; 10000 Services with 15 endpoints each take about 10 MB in etcd.
    /// Never: existing ones are deleted. Default: Auto.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::choice::<SharedSlices>")]
    pub shared: Option<SharedSlices>,
    /// Writes to the API server per second, of plans, slices and statuses together, 1 to 1000. A higher rate
    /// publishes changes sooner in large clusters; it does not affect how fast nodes are programmed. Default: 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub writes_per_second: Option<u32>,
}

/// Whether ProxyPlanSlices of the cluster and its zones are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SharedSlices {
    /// In clusters that are small enough to be read with plain kubectl.
    #[default]
    Auto,
    /// In clusters of any size.
    Always,
    /// Never.
    Never,
}

/// The state of the spec, and warnings about objects of the cluster. The controller writes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyConfigStatus {
    /// The metadata.generation of the spec that `conditions` describe. If it is lower than that of the object, the
    /// controller has not read the newest spec yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// Accepted: the spec is valid and in force. While it is False, the last accepted settings stay in force, and the
    /// message names the field to correct. PodsInRanges: endpoints have addresses that settings.localDetection
    /// recognizes; Unknown if no node recognizes pods by address ranges. AgentsManaged: the controller keeps the
    /// DaemonSets of agents up to date; if it is False, the message says what is refused or missing.
    /// OnlyServiceProxy: no node with an agent has a kube-proxy pod. The last two exist if controllers manage the
    /// agents (`--agents-template`), as with the chart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Ignored or suspicious fields in Services, EndpointSlices and ServiceCIDRs: the first 100 by kind and name.
    /// `counts.warnings` is the total. Warnings about a Node are in its ProxyPlan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::CONFIG_WARNINGS))]
    pub warnings: Vec<Warning>,
    /// The size of the cluster, as seen by the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<ConfigCounts>,
    /// The state of the rollout. Controllers serve settings to nodes according to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,
    /// A mass loss of endpoints, while it is held or reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<GuardStatus>,
}

/// The size of the cluster, as seen by the controller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigCounts {
    /// Number of Nodes that have a plan.
    pub nodes: u32,
    /// Number of Services that this proxy serves: those with a cluster IP and a matching service-proxy-name label.
    pub services: u32,
    /// Total number of warnings, including those in `warnings`.
    pub warnings: u32,
}
