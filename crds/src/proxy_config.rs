//! ProxyConfig: what the operator asks for, and what became of it.
#![allow(
    clippy::duplicated_attributes,
    reason = "columns of a table have some words in common"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    GuardSpec, GuardStatus, OverrideSpec, RolloutSpec, RolloutStatus, SettingsSpec, Warning, limit,
    schema,
};

/// What is asked for. Everything may be left out: an empty spec means the defaults.
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
    doc = "Configures Portolan for the whole cluster. There is one, named `default`; the controller creates it with an empty spec where it is missing. Operators write `spec`, the controller writes `status`: look there at the condition Accepted and at `warnings` after a change.",
    validation = Rule::new("self.metadata.name == 'default'").message("there is one ProxyConfig, and its name is default: write `name: default`"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].status",
        description = "Whether the controller uses this spec. If not, the message of the condition says which field is wrong."
    ),
    printcolumn(
        name = "Nodes",
        type_ = "integer",
        json_path = ".status.counts.nodes",
        description = "Nodes that have a plan."
    ),
    printcolumn(
        name = "Services",
        type_ = "integer",
        json_path = ".status.counts.services",
        description = "Services that are served."
    ),
    printcolumn(
        name = "Warnings",
        type_ = "integer",
        json_path = ".status.counts.warnings",
        description = "Warnings about Services, EndpointSlices and other objects that are not Nodes."
    ),
    printcolumn(
        name = "Revision",
        type_ = "string",
        json_path = ".status.rollout.currentRevision",
        description = "The settings of nodes that no change has reached."
    ),
    printcolumn(
        name = "Rollout",
        type_ = "string",
        json_path = ".status.rollout.phase",
        description = "How far a change of the settings is."
    ),
    printcolumn(
        name = "Wave",
        type_ = "string",
        json_path = ".status.rollout.wave",
        description = "The nodes that are given it at present."
    ),
    printcolumn(
        name = "Guard",
        type_ = "string",
        json_path = ".status.guard.mode",
        description = "Hold or Report while endpoints have vanished in mass; .status.guard says more."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ProxyConfigSpec {
    /// What nodes do. A field that is left out keeps its default. A change needs no restart; it reaches
    /// nodes in waves if there is `spec.rollout`, be it empty, and all of them within seconds if not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<SettingsSpec>,
    /// Other settings for some nodes, by their labels. They are taken in order: of several that name a
    /// node, a later one wins. A change takes the same way as one of `spec.settings`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = limit::OVERRIDES),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub overrides: Option<Vec<OverrideSpec>>,
    /// How a change of `spec.settings`, of `spec.overrides` or of agents (by `helm upgrade`) reaches nodes. An empty
    /// one (`rollout: {}`) means waves with the defaults; without it, all nodes have a change at once, and agents as
    /// their DaemonSet's update strategy says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutSpec>,
    /// What is done when endpoints vanish in mass. Without it, that is told (`guard: {mode: Report}`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<GuardSpec>,
    /// What the controller writes into ProxyPlans and ProxyPlanSlices, and how fast. Nodes do not
    /// read these objects: they are for people, tools and audits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish: Option<PublishSpec>,
}

/// What the controller writes for reading with kubectl.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PublishSpec {
    /// Whether the parts of plans that nodes share are written as ProxyPlanSlices. Auto: in clusters
    /// of up to 2000 Services. Always: whatever the size; 10000 Services of 15 endpoints are
    /// about 10 MB in the API server's store. Never: existing ones are deleted. Default: Auto.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::choice::<SharedSlices>")]
    pub shared: Option<SharedSlices>,
    /// Writes to the API server per second, of plans, slices and statuses together, 1 to 1000. More
    /// shows changes sooner in large clusters; it has no effect on how fast nodes are programmed.
    /// Default: 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub writes_per_second: Option<u32>,
}

/// Whether ProxyPlanSlices of the cluster and its zones are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SharedSlices {
    /// In clusters of a size that can be read with plain kubectl.
    #[default]
    Auto,
    /// Whatever the size.
    Always,
    /// Not at all.
    Never,
}

/// What became of the spec, and what is wrong in the cluster's objects. The controller writes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyConfigStatus {
    /// The metadata.generation of the spec that `conditions` are about. Lower than the object's own:
    /// the controller has not read the newest spec yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// Accepted: the spec makes sense and is in force. While it is False, the last accepted settings
    /// stay in force, and the message names the field to correct. PodsInRanges: endpoints have addresses by which
    /// settings.localDetection tells them. AgentsManaged: the controller keeps the agents' DaemonSets as they should be;
    /// where it is False, the message says what is refused or missing. OnlyServiceProxy: no node of agents has a pod of
    /// kube-proxy. The last two are there when the chart installed Portolan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// What was ignored or looks wrong in Services, EndpointSlices and ServiceCIDRs: the first
    /// by kind and name. `counts.warnings` says how many there are in all. Warnings about a Node
    /// are in its ProxyPlan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::CONFIG_WARNINGS))]
    pub warnings: Vec<Warning>,
    /// The size of the cluster as the controller knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<ConfigCounts>,
    /// How far settings are. The controllers serve nodes by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,
    /// Endpoints that vanished in mass, while they are held or told of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<GuardStatus>,
}

/// The size of the cluster as the controller knows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigCounts {
    /// Nodes that have a plan.
    pub nodes: u32,
    /// Services that are served: those with a cluster IP that belong to this proxy.
    pub services: u32,
    /// Warnings in all, those of `warnings` included.
    pub warnings: u32,
}
