//! `spec.overrides` and `spec.rollout`: settings of some nodes, and how a change reaches nodes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{SettingsSpec, schema};

/// Other settings for some nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverrideSpec {
    /// A unique name, for users.
    #[schemars(schema_with = "schema::own_name")]
    pub name: String,
    /// The nodes that the override applies to.
    pub node_selector: NodeSelectorSpec,
    /// Settings that replace those in `spec.settings` on these nodes. Each top-level field here replaces the same field
    /// of `spec.settings` completely: with `sync: {period: 1m}`, `sync.minPeriod` has its default, regardless of
    /// `spec.settings.sync`. `externalIPs` and `serviceProxyName` affect what all nodes share, so they are not allowed
    /// here.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-validations" = schema::override_rules()))]
    pub settings: SettingsSpec,
}

/// Selects nodes by labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorSpec {
    /// Nodes that have all of these labels with these values, 1 to 8.
    #[schemars(schema_with = "schema::labels")]
    pub match_labels: BTreeMap<String, String>,
}

/// How a change of `spec.settings`, of `spec.overrides` or of agents (by `helm upgrade`) reaches nodes: first a few
/// nodes (the canaries), then zone by zone. Each wave is observed before the next one starts, and a change that fails
/// is rolled back on the nodes that have it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutSpec {
    /// The first wave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanarySpec>,
    /// How long each wave is observed after all of its nodes have received the change. Default: `10m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub soak: Option<String>,
    /// The waves after the canaries. Zone: one for each zone, in the order of their names. All: one wave. Default:
    /// Zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::choice::<WavesBy>")]
    pub by: Option<WavesBy>,
    /// How many nodes may be applying a change at the same time, that is, have received it and not yet reported: a
    /// number from 1, or a percentage of the nodes that the change affects, such as `10%`. Default: `10%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::some_nodes")]
    pub max_parallel: Option<IntOrString>,
    /// The rollout waits while more than this many nodes with the change fail or have lost their agents: a number, or a
    /// percentage of the nodes that the change affects, such as `5%`. For canaries it is 0. Also how many agents are
    /// replaced at a time, at least 1. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_nodes")]
    pub max_unavailable: Option<IntOrString>,
    /// What happens when a change fails. Rollback: the nodes with the change get the former settings back, and the
    /// change is retried only after it has been modified, or after `kubectl proxyplan rollout resume`. Pause: no other
    /// node receives it until `kubectl proxyplan rollout resume`. Without this command: set `paused` to true, wait for
    /// the phase Paused or for `status.rollout.tryAgain`, and set it to false. Default: Rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::choice::<OnFailure>")]
    pub on_failure: Option<OnFailure>,
    /// While true, no node receives a change and nothing is rolled back. A change that is removed from the spec is
    /// still withdrawn. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// A revision of `status.rollout.history`, such as `default-5`, that replaces `spec.settings`, `spec.overrides`
    /// and the chart's agents while this field is set. Default: empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::revision_or_none")]
    pub rollback_to: Option<String>,
    /// Conditions that nodes with a change must meet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gates: Option<GatesSpec>,
}

/// The first wave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CanarySpec {
    /// Number of canaries, 0 to 100; chosen from the healthy nodes that the change affects. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub count: Option<u32>,
}

/// Conditions that nodes with a change must meet. Nodes that were disconnected, failing or drifted before they received
/// it do not count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatesSpec {
    /// How many nodes may fail (the condition Applied or Healthy of their ProxyPlan is False). Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_failed_nodes: Option<u32>,
    /// How many nodes may have the condition Drifted True. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_drifted_nodes: Option<u32>,
    /// How long `status.lag` of the ProxyPlans may be, on 99 of 100 nodes. Default: `5s`.
    #[serde(
        rename = "programmingP99",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::duration")]
    pub programming_p99: Option<String>,
}

/// How nodes are grouped into waves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WavesBy {
    /// One wave for each zone.
    Zone,
    /// One wave.
    All,
}

/// What happens when a change fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// The nodes with the change get the former settings back.
    Rollback,
    /// No other node receives the change until `kubectl proxyplan rollout resume`.
    Pause,
}
