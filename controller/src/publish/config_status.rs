//! The status of the ProxyConfig: whether it is in force, and what is wrong in the cluster's
//! objects. Pure.

use std::time::SystemTime;

use portolan_crds as crds;
use portolan_crds::{condition, limit};

use super::content::{sentence, shortened};
use super::figures::count;
use super::plan::warning;
use super::previous::Since;
use super::status::{Judged, Verdict, condition};
use crate::known::Known;
use crate::object::ObjectId;

/// What became of a spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigJudged {
    /// The generation of the spec.
    pub generation: i64,
    /// What is wrong with it; `None` when it is in force.
    pub problem: Option<String>,
    /// Whether it reaches nodes in waves.
    pub in_waves: bool,
}

/// The status of the ProxyConfig `default`; `previous` is what its condition Accepted was.
pub fn config_status(
    known: &Known,
    judged: Option<&ConfigJudged>,
    now: SystemTime,
    previous: Option<Since>,
) -> crds::ProxyConfigStatus {
    let mut warnings = warnings(known);
    let counts = crds::ConfigCounts {
        nodes: count(known.planner.nodes().len()),
        services: count(known.planner.services().len()),
        warnings: count(warnings.len()),
    };
    warnings.truncate(limit::CONFIG_WARNINGS);
    let accepted = judged.map(|judged| {
        let (verdict, reason, words) = match &judged.problem {
            None if judged.in_waves => (
                Verdict::True,
                "InWaves",
                "the settings make sense; status.rollout says which of them nodes have".to_owned(),
            ),
            None => (
                Verdict::True,
                "InForce",
                "the settings are in force".to_owned(),
            ),
            Some(problem) => (
                Verdict::False,
                "Invalid",
                format!("{problem}; the last settings that made sense stay in force"),
            ),
        };
        let judgement = Judged { verdict, reason };
        let mut condition = condition(condition::ACCEPTED, judgement, &words, previous, now);
        condition.observed_generation = Some(judged.generation);
        condition
    });
    crds::ProxyConfigStatus {
        observed_generation: judged.map(|judged| judged.generation),
        conditions: accepted.into_iter().collect(),
        warnings,
        counts: Some(counts),
        // Others write them.
        rollout: None,
        guard: None,
    }
}

/// Warnings about everything but Nodes, whose ProxyPlans have theirs, each once, in order.
fn warnings(known: &Known) -> Vec<crds::Warning> {
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
