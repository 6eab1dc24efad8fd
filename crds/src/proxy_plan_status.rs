//! The status of a ProxyPlan: what the node's agent said last.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{limit, schema};

/// What the node's agent said last. The controller that holds the agent's stream writes it: when a
/// condition changes, and otherwise every 5 minutes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyPlanStatus {
    /// The hash of the plan that is in the kernel, 32 hexadecimal digits; absent before a first one.
    /// `portolan-controller plan` prints the hash of the plan that should be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = "^[0-9a-f]{32}$"))]
    pub applied_hash: Option<String>,
    /// The hash of the plan that the agent received last. It differs from `appliedHash` while something
    /// could not be read or written, see `failures` and `undecodable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = "^[0-9a-f]{32}$"))]
    pub received_hash: Option<String>,
    /// Which settings were in force in the kernel when everything was applied last, like `default-5`;
    /// absent before that. Where they are on their way, `spec.settingsRevision` is ahead of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::LABEL))]
    pub settings_revision: Option<String>,
    /// From the making of the last batch by the controller to the agent's word that it is in the
    /// kernel, like `41ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    pub lag: Option<String>,
    /// Kernel operations of the last batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub operations: Option<i64>,
    /// Entries of the kernel that somebody else had changed when the agent last compared it with the
    /// plan; absent while the agent has not told. With spec.settings.drift Repair of the ProxyConfig
    /// they are put right at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub drift: Option<i64>,
    /// Kernel operations of the last batch that failed, in words: the first 5. The agent tries them
    /// again by itself; its log on the node has all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::FAILURES), inner(length(max = limit::SENTENCE)))]
    pub failures: Vec<String>,
    /// How many operations failed in all; absent when none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub failed_operations: Option<i64>,
    /// Entries of the plan that the agent could not read, by key: the first 5. Their last readable form
    /// stays in force. Usually the agent is older than the controller: update it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::FAILURES), inner(length(max = limit::SENTENCE)))]
    pub undecodable: Vec<String>,
    /// The version of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub agent_version: Option<String>,
    /// The name of the agent's pod, by its token: the one that this status was reported by. Absent where the
    /// controller asks for no tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::NAME))]
    pub agent_pod: Option<String>,
    /// When this status was written. Older than 10 minutes: no controller is writing, see its logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::moment")]
    pub heartbeat_time: Option<Time>,
    /// Applied: the kernel has what the node was sent last. Healthy: the agent is connected and nothing
    /// fails. Drifted: somebody else changed entries of the kernel that are ours. KernelSettings: the kernel has
    /// the settings that the node needs; where that is False, the agent may not write them. Unknown: the agent
    /// is not connected, or has not told. To wait for a node:
    /// `kubectl wait proxyplan/NODE --for=condition=Applied`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// The types of conditions, as they are spelled.
pub mod condition {
    /// The kernel of the node has what the node was sent last.
    pub const APPLIED: &str = "Applied";
    /// The agent is connected and nothing fails.
    pub const HEALTHY: &str = "Healthy";
    /// Somebody else changed entries of the kernel that are ours.
    pub const DRIFTED: &str = "Drifted";
    /// The kernel has the settings that the node needs.
    pub const KERNEL_SETTINGS: &str = "KernelSettings";
    /// Of a ProxyConfig: its spec makes sense and is in force.
    pub const ACCEPTED: &str = "Accepted";
    /// Of a ProxyConfig: endpoints have addresses by which `spec.settings.localDetection` tells them.
    pub const PODS_IN_RANGES: &str = "PodsInRanges";
    /// Of a ProxyConfig: the controller keeps the agents' DaemonSets as they should be.
    pub const AGENTS_MANAGED: &str = "AgentsManaged";
    /// Of a ProxyConfig: no node of agents has a pod of kube-proxy.
    pub const ONLY_SERVICE_PROXY: &str = "OnlyServiceProxy";
}
