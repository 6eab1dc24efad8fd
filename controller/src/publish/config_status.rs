//! The status of the ProxyConfig: whether it is in force, and problems of the cluster's objects. Pure.

use std::time::SystemTime;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use portolan_crds as crds;
use portolan_crds::{condition, limit};
use portolan_planner::OutsideRanges;

use super::content::{sentence, shortened};
use super::figures::count;
use super::plan::warning;
use super::previous::since;
use super::status::{Judged, Verdict, condition};
use crate::cluster_state::ClusterState;
use portolan_planner::model::ObjectId;

/// The result of reading a spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigJudged {
    /// The generation of the spec.
    pub generation: i64,
    /// The problem of the spec; `None` if it is in force.
    pub problem: Option<String>,
    /// Whether it is rolled out in waves.
    pub in_waves: bool,
}

/// The status of the ProxyConfig `default`; `outside_ranges` are endpoints outside the ranges of their nodes, and `previous`
/// are its stored conditions.
pub fn config_status(
    known: &ClusterState,
    outside_ranges: &OutsideRanges,
    judged: Option<&ConfigJudged>,
    now: SystemTime,
    previous: &[Condition],
) -> crds::ProxyConfigStatus {
    let mut warnings = warnings(known);
    let counts = crds::ConfigCounts {
        nodes: count(known.planner.nodes().len()),
        services: count(known.planner.services().len()),
        warnings: count(warnings.len()),
    };
    warnings.truncate(limit::CONFIG_WARNINGS);
    let accepted = judged.map(|judged| accepted(judged, now, previous));
    crds::ProxyConfigStatus {
        observed_generation: judged.map(|judged| judged.generation),
        conditions: accepted
            .into_iter()
            .chain([in_ranges(outside_ranges, now, previous)])
            .collect(),
        warnings,
        counts: Some(counts),
        // Other field managers write them.
        rollout: None,
        guard: None,
    }
}

fn accepted(judged: &ConfigJudged, now: SystemTime, previous: &[Condition]) -> Condition {
    let (verdict, reason, words) = match &judged.problem {
        None if judged.in_waves => (
            Verdict::True,
            "InWaves",
            "the settings are valid; status.rollout has the settings of nodes".to_owned(),
        ),
        None => (
            Verdict::True,
            "InForce",
            "the settings are in force".to_owned(),
        ),
        Some(problem) => (
            Verdict::False,
            "Invalid",
            format!("{problem}; the last valid settings stay in force"),
        ),
    };
    let judgement = Judged { verdict, reason };
    let previous = since(previous, condition::ACCEPTED);
    let mut condition = condition(condition::ACCEPTED, judgement, &words, previous, now);
    condition.observed_generation = Some(judged.generation);
    condition
}

/// Whether endpoints are in the pod ranges of their nodes, by which nodes detect their own pods.
fn in_ranges(outside_ranges: &OutsideRanges, now: SystemTime, previous: &[Condition]) -> Condition {
    let checked = outside_ranges.checked();
    let nodes = outside_ranges.nodes();
    let (verdict, reason, words) = match nodes.iter().next() {
        _ if checked == 0 => (
            Verdict::Unknown,
            "NothingToCompare",
            "no endpoint is on a node that recognizes its pods by address ranges".to_owned(),
        ),
        None => (
            Verdict::True,
            "InRanges",
            "all endpoints are in the pod ranges of their nodes".to_owned(),
        ),
        Some((name, first)) => {
            let outside: usize = nodes.values().map(|node| node.outside).sum();
            let nodes = match nodes.len() - 1 {
                0 => "one node".to_owned(),
                others => format!("{} nodes", others + 1),
            };
            let ranges: Vec<_> = first.ranges.iter().map(ToString::to_string).collect();
            let words = format!(
                "{outside} of {checked} endpoints, on {nodes}, are outside the pod ranges of their nodes, for example {} \
                 of EndpointSlice {} on node {name}, whose ranges are {}: nodes treat such pods as external clients and \
                 masquerade them at cluster IPs; check spec.podCIDRs of the nodes, or spec.settings.localDetection of \
                 the ProxyConfig if the network assigns addresses differently",
                first.first,
                first.slice,
                ranges.join(" and ")
            );
            (Verdict::False, "OutsideRanges", words)
        }
    };
    let judgement = Judged { verdict, reason };
    let previous = since(previous, condition::PODS_IN_RANGES);
    condition(condition::PODS_IN_RANGES, judgement, &words, previous, now)
}

/// Warnings about all objects except Nodes, whose warnings are in their ProxyPlans. Without duplicates, in order.
fn warnings(known: &ClusterState) -> Vec<crds::Warning> {
    let elsewhere = |id: &ObjectId| matches!(id, ObjectId::Node(_) | ObjectId::ProxyConfig(_));
    let left_out = known.left_out.iter().filter(|(id, _)| !elsewhere(id));
    let left_out = left_out.map(|(id, problem)| crds::Warning {
        object: shortened(&id.to_string(), 600),
        reason: "LeftOut".into(),
        message: sentence(problem),
    });
    let planned = known.planner.warnings_of_services();
    let mut warnings: Vec<_> = left_out.chain(planned.iter().map(warning)).collect();
    warnings.sort();
    warnings.dedup();
    warnings
}
