//! `status.rollout`: how far settings are. Every controller serves nodes by it, and the one that leads
//! decides everything else from it, so it holds all there is to know.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{limit, schema};

/// How far settings are. The controller that leads writes it; do not edit it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// Complete: all nodes have what is asked for. Progressing: a wave is being given it. Soaking: a wave
    /// has it and is watched. Paused: by `spec.rollout.paused`. Halted: a gate was not passed, and the
    /// rollout goes on once it was paused and resumed. RolledBack: a gate was not passed, and the change
    /// was taken back.
    #[schemars(schema_with = "schema::choice::<RolloutPhase>")]
    pub phase: RolloutPhase,
    /// What nodes have that no change has reached.
    #[schemars(length(max = limit::LABEL))]
    pub current_revision: String,
    /// What is on its way, or did not pass; the current one when nothing is.
    #[schemars(length(max = limit::LABEL))]
    pub target_revision: String,
    /// The wave: canary, a zone, or all; absent when nothing is on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub wave: Option<String>,
    /// Nodes that have been given the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub touched_nodes: Option<u32>,
    /// Nodes that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub total_nodes: Option<u32>,
    /// What it waits for, in words; absent when it only takes its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::SENTENCE))]
    pub waiting_for: Option<String>,
    /// Why the last change was taken back or stopped, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::SENTENCE))]
    pub reason: Option<String>,
    /// Which nodes have been given the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<ReachedNodes>,
    /// Since when all nodes of the wave have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::moment")]
    pub soaking_since: Option<Time>,
    /// When nodes were given it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::moment")]
    pub touched_time: Option<Time>,
    /// Nodes that were away or failing before they were given it. They are not held against it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::EXCUSED), inner(length(max = limit::NAME)))]
    pub excused_nodes: Vec<String>,
    /// The change that was taken back is tried again once the rollout is resumed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub try_again: bool,
    /// A gate was not passed, and somebody has to look.
    #[serde(default, skip_serializing_if = "is_false")]
    pub halted: bool,
    /// Settings that were asked for so far, the last 10 at most, in the order in which they came into
    /// force. The current and the target revision are always among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::REVISIONS))]
    pub history: Vec<RevisionRecord>,
}

/// What is going on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RolloutPhase {
    /// All nodes have what is asked for.
    #[default]
    Complete,
    /// A wave is being given it.
    Progressing,
    /// A wave has it and is watched.
    Soaking,
    /// The operator paused it.
    Paused,
    /// A gate was not passed, and somebody has to look.
    Halted,
    /// A gate was not passed, and it was taken back.
    RolledBack,
}

/// Which nodes have been given a change: what is named here, whatever the size of the cluster. Within a
/// zone nodes are given it in the order of a hash of their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReachedNodes {
    /// What is under way: the canaries, a zone, or everything.
    #[schemars(schema_with = "schema::choice::<WaveKind>")]
    pub wave: WaveKind,
    /// The zone that is under way; absent where there is none, or for nodes without a zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::LABEL))]
    pub zone: Option<String>,
    /// How far it is: a hash of 16 hexadecimal digits, of the last node; absent while nobody was given it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = "^[0-9a-f]{16}$"))]
    pub through: Option<String>,
    /// The canaries, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::CANARIES), inner(length(max = limit::NAME)))]
    pub nodes: Vec<String>,
    /// Zones as a whole; an empty text stands for nodes without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::ZONES), inner(length(max = limit::LABEL)))]
    pub zones: Vec<String>,
}

/// A kind of wave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WaveKind {
    /// The first few nodes.
    #[default]
    Canary,
    /// The nodes of a zone.
    Zone,
    /// All others.
    All,
}

/// Settings that were asked for once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionRecord {
    /// Its name: `default-` and a number, of the generation that first asked for it or higher.
    /// `spec.rollout.rollbackTo` takes it.
    #[schemars(length(max = limit::LABEL))]
    pub revision: String,
    /// When it was first asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::moment")]
    pub since: Option<Time>,
    /// `spec.settings`, `spec.overrides` and the template of agents as JSON. As text, so that a later release's
    /// fields are kept.
    #[schemars(length(max = limit::REVISION_TEXT))]
    pub content: String,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(value: &bool) -> bool {
    !*value
}
