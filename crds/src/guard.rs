//! `spec.guard` and `status.guard`: endpoints that vanish in mass.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{limit, schema};

/// What is done when ready endpoints vanish from EndpointSlices in mass while their Services are there and their
/// Nodes are Ready: a broken controller or an emptied store, rather than pods that ended in order. Endpoints
/// that are not ready any more, and new ones, reach nodes meanwhile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::guard_rules()))]
pub struct GuardSpec {
    /// Report: an event, a metric and `status.guard` tell of it. Hold: as well, and nodes keep the endpoints until the
    /// annotation `proxy.portolan.dev/approve` of this object names `status.guard.id`, until `releaseAfter` is over, or
    /// until they, or others with their addresses, are seen again. Controllers that start meanwhile make no plans.
    /// Default: Report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::choice::<GuardMode>")]
    pub mode: Option<GuardMode>,
    /// More of the ready endpoints than this, in a hundred, 1 to 99, is too much. Default: 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 99))]
    pub max_endpoint_loss_percent: Option<u32>,
    /// Clusters with fewer ready endpoints than this are not judged, 1 to 1000000: a share of a few says little.
    /// Default: 200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub min_endpoints: Option<u32>,
    /// Within this time, 1s to 1h. Default: `1m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub window: Option<String>,
    /// How long it is held, or told of, at most, from 1s. Default: `30m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seconds")]
    pub release_after: Option<String>,
}

/// What is done about endpoints that vanish in mass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GuardMode {
    /// It is told.
    #[default]
    Report,
    /// It is told, and nodes keep the endpoints.
    Hold,
}

/// Endpoints that vanished in mass; absent while there is no such thing. Controllers write it, and all of them
/// hold the endpoints by it; do not edit it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuardStatus {
    /// Its name. To let the endpoints go: `kubectl annotate proxyconfig default --overwrite
    /// proxy.portolan.dev/approve=ID`.
    #[schemars(length(max = limit::LABEL))]
    pub id: String,
    /// Hold: nodes have the endpoints still. Report: they have not.
    #[schemars(schema_with = "schema::choice::<GuardMode>")]
    pub mode: GuardMode,
    /// When it was noticed.
    #[schemars(schema_with = "schema::moment")]
    pub since: Time,
    /// When it ends by itself.
    #[schemars(schema_with = "schema::moment")]
    pub release_time: Time,
    /// Endpoints that vanished, and were not seen again.
    #[schemars(range(min = 0))]
    pub lost_endpoints: u32,
    /// Ready endpoints of the cluster, those included.
    #[schemars(range(min = 0))]
    pub ready_endpoints: u32,
    /// The same in words, and what to do next.
    #[schemars(length(max = limit::SENTENCE))]
    pub message: String,
}
