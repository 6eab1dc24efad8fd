//! HTTP responses for `healthCheckNodePort` (S-135 to S-139), `/healthz` and `/livez` (S-149 to S-152). Tests compare
//! them byte by byte.

use std::collections::BTreeMap;

use jiff::Timestamp;
use portolan_plan::{Family, ServiceId};
use serde::Serialize;

use super::progress::{FamilyState, Moment, Progress};
use crate::page::Answer;

/// The header from which load balancers take the weight of a node.
const WEIGHT: &str = "x-load-balancing-endpoint-weight";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckBody<'a> {
    service: ServiceBody<'a>,
    local_endpoints: u32,
    service_proxy_healthy: bool,
}

#[derive(Serialize)]
struct ServiceBody<'a> {
    namespace: &'a str,
    name: &'a str,
}

/// The response of a Service's health check port.
pub(super) fn check(service: &ServiceId, local_endpoints: u32, healthy: bool) -> Answer {
    let body = CheckBody {
        service: ServiceBody {
            namespace: &service.namespace,
            name: &service.name,
        },
        local_endpoints,
        service_proxy_healthy: healthy,
    };
    let answer = Answer::json(status(healthy && local_endpoints > 0), &body);
    answer.with(WEIGHT, local_endpoints)
}

/// The response on a connection that was opened before the Service lost the port.
pub(super) fn no_check() -> Answer {
    Answer::text(503, "no Service has this health check port any more\n")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeBody {
    /// The current time if the node is healthy, else the time of the last successful pass; null before the first one.
    last_updated: Option<Timestamp>,
    current_time: Timestamp,
    healthy: bool,
    status: BTreeMap<&'static str, FamilyBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_eligible: Option<bool>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FamilyBody {
    last_updated: Timestamp,
    healthy: bool,
}

/// The response of `/healthz`, which includes whether load balancers should send traffic to this node
/// (`eligible`), or of `/livez`, which does not include it (S-150).
pub(super) fn node(progress: &Progress, eligible: Option<bool>, now: Moment) -> Answer {
    let families = progress.families(now.running);
    let healthy = progress.is_healthy(now.running);
    let good = healthy && eligible != Some(false);
    let newest = families.values().map(|state| state.updated).max();
    let family = |(family, state): (Family, FamilyState)| {
        let FamilyState { updated, healthy } = state;
        let body = FamilyBody {
            last_updated: updated,
            healthy,
        };
        (family.as_str(), body)
    };
    let body = NodeBody {
        last_updated: if good { Some(now.wall) } else { newest },
        current_time: now.wall,
        healthy,
        status: families.into_iter().map(family).collect(),
        node_eligible: eligible,
    };
    Answer::json(status(good), &body)
}

fn status(good: bool) -> u16 {
    if good { 200 } else { 503 }
}
