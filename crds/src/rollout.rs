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
    /// A name for people; each may be given once.
    #[schemars(schema_with = "schema::own_name")]
    pub name: String,
    /// The nodes.
    pub node_selector: NodeSelectorSpec,
    /// What these nodes have in place of `spec.settings`: a field that is given here takes the place of
    /// that whole field, so `sync: {period: 1m}` has the default for `sync.minPeriod`, whatever
    /// `spec.settings.sync` says. `externalIPs` and `serviceProxyName` say what is served, which all
    /// nodes share, so they have no place here.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-validations" = schema::override_rules()))]
    pub settings: SettingsSpec,
}

/// Nodes by their labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorSpec {
    /// Nodes that have all of these labels with these values, 1 to 8.
    #[schemars(schema_with = "schema::labels")]
    pub match_labels: BTreeMap<String, String>,
}

/// How a change of `spec.settings`, of `spec.overrides` or of agents (by `helm upgrade`) reaches nodes: first a
/// few (the canaries), then zone by zone. Each wave is watched before the next one begins, and what does not pass is taken back
/// from the nodes that had it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutSpec {
    /// The first wave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanarySpec>,
    /// How long each wave is watched once all of its nodes have the change. Default: `10m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub soak: Option<String>,
    /// The waves after the canaries. Zone: one for each zone, in the order of their names. All: one.
    /// Default: Zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::choice::<WavesBy>")]
    pub by: Option<WavesBy>,
    /// How many nodes may have been given a change and not have answered, at once: a number from 1, or a
    /// share of the nodes that the change concerns, like `10%`. Default: `10%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::some_nodes")]
    pub max_parallel: Option<IntOrString>,
    /// While more nodes than this fail or have lost their agents since they were given a change, no
    /// others are given it: a number, or a share like `5%`. Canaries may not. Of agents no more than this, but
    /// one at least, are replaced at once. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any_nodes")]
    pub max_unavailable: Option<IntOrString>,
    /// What is done when a gate is not passed. Rollback: the nodes that were given the change are given
    /// the former settings again, and it is not tried again before it is changed, or the rollout is paused
    /// and resumed. Pause: nobody else is given it before the rollout is paused and resumed.
    /// Default: Rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::choice::<OnFailure>")]
    pub on_failure: Option<OnFailure>,
    /// Nobody is given anything, and nothing is taken back, before this is false again. What is taken out
    /// of the spec is taken back all the same. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// A revision of `status.rollout.history`, like `default-5`, that is wanted in place of
    /// `spec.settings`, `spec.overrides` and the chart's agents for as long as this names it. Default: empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::revision_or_none")]
    pub rollback_to: Option<String>,
    /// What nodes that were given a change are held to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gates: Option<GatesSpec>,
}

/// The first wave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CanarySpec {
    /// How many nodes, 0 to 100; of those that the change concerns and that are in order. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub count: Option<u32>,
}

/// What nodes that were given a change are held to. Nodes that were away, failing or changed by others
/// before do not count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatesSpec {
    /// So many may fail (their ProxyPlan's condition Applied or Healthy is False). Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_failed_nodes: Option<u32>,
    /// Of so many the condition Drifted may be True. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_drifted_nodes: Option<u32>,
    /// How long a plan may take from its making to its being in force, on 99 in 100 nodes.
    /// Default: `5s`.
    #[serde(
        rename = "programmingP99",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::duration")]
    pub programming_p99: Option<String>,
}

/// How waves are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WavesBy {
    /// One for each zone.
    Zone,
    /// One.
    All,
}

/// What is done when a gate is not passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// The nodes that were given the change are given the former settings again.
    Rollback,
    /// Somebody has to look.
    Pause,
}
