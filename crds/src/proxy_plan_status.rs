//! The status of a ProxyPlan: the last report of the node's agent.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{limit, schema};

/// The last report of the node's agent. The controller to which the agent is connected writes it when a condition
/// changes, and otherwise every 5 minutes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyPlanStatus {
    /// The hash of the plan in the kernel, 32 hexadecimal digits; absent before the first plan. `kubectl proxyplan show
    /// NODE` prints the hash of the desired plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = "^[0-9a-f]{32}$"))]
    pub applied_hash: Option<String>,
    /// The hash of the plan that the agent received last. It differs from `appliedHash` while something could not be
    /// read or written; see `failures` and `undecodable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = "^[0-9a-f]{32}$"))]
    pub received_hash: Option<String>,
    /// The settings that were in the kernel when everything was last applied, such as `default-5`; absent before
    /// that. During a change, `spec.settingsRevision` is newer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::LABEL_CHARS))]
    pub settings_revision: Option<String>,
    /// Time from the creation of the last batch of changes by the controller to the agent's report that the kernel has
    /// it, such as `41ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    pub lag: Option<String>,
    /// Number of kernel operations of the last batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub operations: Option<i64>,
    /// Number of kernel entries that other programs had changed when the agent last compared the kernel with the plan;
    /// absent until the agent has reported. With spec.settings.drift Repair of the ProxyConfig they are repaired at
    /// once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub drift: Option<i64>,
    /// Failed kernel operations of the last batch, with causes: the first 5. The agent retries them; its log on the
    /// node contains all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::FAILURES), inner(length(max = limit::MESSAGE_CHARS)))]
    pub failures: Vec<String>,
    /// Total number of failed operations; absent if none failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub failed_operations: Option<i64>,
    /// Number of Services that are not completely in force on this node, although the rest of the plan is; absent if
    /// there are none. They do not affect the conditions, gates of rollouts, or other Services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub failing_services: Option<i64>,
    /// Services that are not on this node as their objects ask: the first 8. Each namespace has one of them before
    /// another has two. Written with the next change of a condition, or after 5 minutes; an event on the Service
    /// reports it at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::TROUBLES))]
    pub troubles: Vec<ServiceTrouble>,
    /// Keys of plan entries that the agent could not read: the first 5. Their last readable version stays in force.
    /// Usually the agent is older than the controller: update it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::FAILURES), inner(length(max = limit::MESSAGE_CHARS)))]
    pub undecodable: Vec<String>,
    /// The IPVS schedulers that the kernel had loaded when the agent connected. Further ones may be built in, or are
    /// loaded when a Service needs them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::SCHEDULERS), inner(length(max = limit::SCHEDULER_CHARS)))]
    pub schedulers: Vec<String>,
    /// The version of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub agent_version: Option<String>,
    /// The name of the agent's pod that reported this status, from its token. Absent if the controller does not
    /// require tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::NAME_CHARS))]
    pub agent_pod: Option<String>,
    /// When this status was written. If it is older than 15 minutes, no controller writes it: check their logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::moment")]
    pub heartbeat_time: Option<MicroTime>,
    /// Applied: the kernel has the plan that the node received last, that is, the plan is in force. Healthy: the agent
    /// is connected and nothing fails. Drifted: other programs changed kernel entries that Portolan owns, and the
    /// changes are not repaired. KernelSettings: the kernel has the settings that the node needs; if it is False, the
    /// agent could not write at least one of them, see its message. Unknown: the agent is not connected, or has not
    /// reported yet. To wait for a node: `kubectl wait proxyplan/NODE --for=condition=Applied`; to wait for a change
    /// of a Service: `kubectl proxyplan wait`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A Service that is not on a node as its objects ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceTrouble {
    /// The Service, as `NAMESPACE/NAME`.
    #[schemars(length(max = 127))]
    pub service: String,
    /// The reason as one word: SchedulerMissing, EndpointRefused, EntryUnreadable or HealthPortClosed.
    #[schemars(length(max = limit::LABEL_CHARS))]
    pub reason: String,
    /// The reason as a sentence, and what to do.
    #[schemars(length(max = limit::MESSAGE_CHARS))]
    pub message: String,
    /// Whether the Service is served nevertheless: with another scheduler, or without its health check port.
    pub in_force: bool,
}

/// Condition types.
pub mod condition {
    /// The kernel of the node has the plan that the node received last.
    pub const APPLIED: &str = "Applied";
    /// The agent is connected and nothing fails.
    pub const HEALTHY: &str = "Healthy";
    /// Other programs changed kernel entries that Portolan owns, and the changes are not repaired.
    pub const DRIFTED: &str = "Drifted";
    /// The kernel has the settings that the node needs.
    pub const KERNEL_SETTINGS: &str = "KernelSettings";
    /// Of a ProxyConfig: its spec is valid and in force.
    pub const ACCEPTED: &str = "Accepted";
    /// Of a ProxyConfig: endpoints have addresses that `spec.settings.localDetection` recognizes.
    pub const PODS_IN_RANGES: &str = "PodsInRanges";
    /// Of a ProxyConfig: the controller keeps the DaemonSets of agents up to date.
    pub const AGENTS_MANAGED: &str = "AgentsManaged";
    /// Of a ProxyConfig: no node with an agent has a kube-proxy pod.
    pub const ONLY_SERVICE_PROXY: &str = "OnlyServiceProxy";
}
