//! `status.rollout`: the state of a rollout. Every controller serves settings to nodes according to it, and a new
//! leader continues from it, so it contains the complete state.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{limit, schema};

/// The state of the rollout. The leader writes it; do not edit it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// Complete: all nodes have the desired settings. Progressing: a wave is receiving the change. Soaking: a wave
    /// has it and is observed. Paused: by `spec.rollout.paused`. Halted: the change failed, and the rollout continues
    /// after `kubectl proxyplan rollout resume`. RolledBack: the change failed and was rolled back.
    #[schemars(schema_with = "schema::choice::<RolloutPhase>")]
    pub phase: RolloutPhase,
    /// The revision in force: that of all nodes except those that have received the current change.
    #[schemars(length(max = limit::LABEL_CHARS))]
    pub current_revision: String,
    /// The revision that is being rolled out, or that failed; the current one if there is no change.
    #[schemars(length(max = limit::LABEL_CHARS))]
    pub target_revision: String,
    /// The wave: canary, a zone, or all; absent if no change is in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100))]
    pub wave: Option<String>,
    /// Number of nodes that have received the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub touched_nodes: Option<u32>,
    /// Number of nodes that the change affects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub total_nodes: Option<u32>,
    /// What the rollout waits for, as a sentence; absent if it only waits for time to pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::MESSAGE_CHARS))]
    pub waiting_for: Option<String>,
    /// Why the last change was rolled back or stopped, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::MESSAGE_CHARS))]
    pub reason: Option<String>,
    /// How far the change has come, for controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<ReachedNodes>,
    /// Since when all nodes of the wave have the change; the soak time counts from then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::moment")]
    pub soaking_since: Option<Time>,
    /// When a node last received the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::moment")]
    pub touched_time: Option<Time>,
    /// Nodes that were disconnected or failing before they received the change. They do not count against it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::EXCUSED), inner(length(max = limit::NAME_CHARS)))]
    pub excused_nodes: Vec<String>,
    /// The rolled-back change is retried when the rollout is resumed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub try_again: bool,
    /// The change failed; the rollout continues only after `kubectl proxyplan rollout resume`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub halted: bool,
    /// Earlier and current revisions of settings, the last 10 at most, in the order in which they came into force. It
    /// always contains the current and the target revision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::REVISIONS))]
    pub history: Vec<RevisionRecord>,
}

/// The phase of a rollout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RolloutPhase {
    /// All nodes have the desired settings.
    #[default]
    Complete,
    /// A wave is receiving the change.
    Progressing,
    /// A wave has the change and is observed.
    Soaking,
    /// It is paused by `spec.rollout.paused`.
    Paused,
    /// The change failed; the rollout continues only after `kubectl proxyplan rollout resume`.
    Halted,
    /// The change failed and was rolled back.
    RolledBack,
}

/// The nodes that have received a change, in a form whose size does not depend on the cluster. Within a zone nodes
/// receive it in the order of a hash of their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReachedNodes {
    /// The wave in progress: the canaries, a zone, or all nodes.
    #[schemars(schema_with = "schema::choice::<WaveKind>")]
    pub wave: WaveKind,
    /// The zone in progress; absent if there is none, or for nodes without a zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::LABEL_CHARS))]
    pub zone: Option<String>,
    /// The progress within the zone: the hash of the name of the last node that received the change, 16 hexadecimal
    /// digits; absent if no node has received it. Nodes receive a change in the order of these hashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = "^[0-9a-f]{16}$"))]
    pub through: Option<String>,
    /// The canaries that have received the change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::CANARIES), inner(length(max = limit::NAME_CHARS)))]
    pub nodes: Vec<String>,
    /// Zones whose nodes have all received the change; an empty string means nodes without a zone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::ZONES), inner(length(max = limit::LABEL_CHARS)))]
    pub zones: Vec<String>,
}

/// A kind of wave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WaveKind {
    /// The first nodes.
    #[default]
    Canary,
    /// The nodes of a zone.
    Zone,
    /// All other nodes.
    All,
}

/// A revision of settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionRecord {
    /// The name of the revision: `default-` and a number, which is the generation that first requested it, or higher.
    /// `spec.rollout.rollbackTo` refers to it.
    #[schemars(length(max = limit::LABEL_CHARS))]
    pub revision: String,
    /// When the revision was first requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::moment")]
    pub since: Option<Time>,
    /// `spec.settings`, `spec.overrides` and the SHA-256 of the template of agents as JSON. It is a string, so that
    /// fields of later releases are preserved. The templates are in a ConfigMap of the controllers' namespace.
    #[schemars(length(max = limit::REVISION_SETTINGS_CHARS))]
    pub content: String,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(value: &bool) -> bool {
    !*value
}
