//! `spec.guard` and `status.guard`: the guard against mass loss of endpoints.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{limit, schema};

/// The reaction to a mass loss of ready endpoints from EndpointSlices, while their Services exist and their Nodes are
/// Ready. This indicates a broken controller or an emptied store, not pods that terminated in order. Endpoints that
/// became unready and new endpoints still reach nodes during a loss.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::guard_rules()))]
pub struct GuardSpec {
    /// Report: an event, a metric and `status.guard` report the loss. Hold: additionally, nodes keep the endpoints. A
    /// hold ends when the annotation `proxy.portolan.dev/approve` of this object contains `status.guard.id`, after
    /// `releaseAfter`, or when the endpoints return or others have their addresses. A controller that starts during a
    /// hold makes no plans until the hold ends, so nodes that are connected to it receive no changes. Default: Report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::choice::<GuardMode>")]
    pub mode: Option<GuardMode>,
    /// A loss begins when more than this percentage of the ready endpoints vanishes within `window`, although their
    /// Services exist and their Nodes are Ready, 1 to 99. Default: 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 99))]
    pub max_endpoint_loss_percent: Option<u32>,
    /// Clusters with fewer ready endpoints than this are not guarded, 1 to 1000000: a percentage of a few endpoints
    /// is not significant. Default: 200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub min_endpoints: Option<u32>,
    /// The time window in which losses are counted, 1s to 1h. Default: `1m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub window: Option<String>,
    /// The longest time that a loss is held or reported, from 1s. Default: `30m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub release_after: Option<String>,
}

/// The reaction to a mass loss of endpoints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GuardMode {
    /// The loss is reported.
    #[default]
    Report,
    /// The loss is reported, and nodes keep the endpoints.
    Hold,
}

/// A mass loss of endpoints; absent if there is none. Controllers write it, and all of them hold the endpoints
/// according to it; do not edit it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuardStatus {
    /// Identifies the loss. To release the endpoints: `kubectl annotate proxyconfig default --overwrite
    /// proxy.portolan.dev/approve=ID`.
    #[schemars(length(max = limit::LABEL_CHARS))]
    pub id: String,
    /// Hold: nodes still have the endpoints. Report: nodes have removed them.
    #[schemars(schema_with = "schema::choice::<GuardMode>")]
    pub mode: GuardMode,
    /// When the loss was detected.
    #[schemars(schema_with = "schema::moment")]
    pub since: Time,
    /// When the loss ends without an approval.
    #[schemars(schema_with = "schema::moment")]
    pub release_time: Time,
    /// Number of endpoints that vanished and have not returned.
    #[schemars(range(min = 0))]
    pub lost_endpoints: u32,
    /// Number of ready endpoints of the cluster, including the lost ones.
    #[schemars(range(min = 0))]
    pub ready_endpoints: u32,
    /// A summary for users, with the next step.
    #[schemars(length(max = limit::MESSAGE_CHARS))]
    pub message: String,
}
