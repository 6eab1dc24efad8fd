//! `spec.rollout` and `status.rollout`.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use portolan_crds as given;
use portolan_crds::ProxyConfig as Given;
use portolan_plan::Period;
use portolan_rollout_policy::{
    Asked, By, Gates, Moment, OnFailure, Partly, Policy, Progress, Reach, Revision, Scope, Share,
    Stage, State, Wave,
};

use super::agents::AgentsRecord;
use super::content::Content;
use super::field::{FieldError, bounded};

/// Prefix of revision names.
const PREFIX: &str = "default-";

/// The wanted revision and the policy of its rollout. If the controller manages agents, the hash of their template is
/// part of the revision.
///
/// # Errors
/// [`FieldError`] names the invalid field of `spec.rollout`, and what is allowed.
pub fn asked(object: &Given, agents: Option<&AgentsRecord>) -> Result<Asked, FieldError> {
    let generation = object.metadata.generation.unwrap_or_default();
    Ok(Asked {
        content: Content::of(object, agents).text()?.into(),
        generation: u64::try_from(generation).unwrap_or_default(),
        policy: object.spec.rollout.as_ref().map(policy).transpose()?,
    })
}

/// The name of a revision.
pub fn revision_name(number: u64) -> String {
    format!("{PREFIX}{number}")
}

/// The number of a revision by its name.
pub fn revision_number(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

fn policy(given: &given::RolloutSpec) -> Result<Policy, FieldError> {
    let defaults = Policy::default();
    let path = |field: &str| format!("spec.rollout.{field}");
    let canaries = given.canary.as_ref().and_then(|canary| canary.count);
    let gates = given.gates.clone().unwrap_or_default();
    let held = Gates::default();
    let rollback_to = match given.rollback_to.as_deref() {
        None | Some("") => None,
        Some(text) => Some(revision_number(text).ok_or_else(|| {
            let problem =
                format!("{text:?} is not a revision; write one of status.rollout.history");
            FieldError::new(path("rollbackTo"), problem)
        })?),
    };
    Ok(Policy {
        canaries: bounded(
            canaries.unwrap_or(defaults.canaries),
            0,
            100,
            path("canary.count"),
        )?,
        soak: match &given.soak {
            None => defaults.soak,
            Some(text) => milliseconds(text, path("soak"))? / 1000,
        },
        by: match given.by {
            None | Some(given::WavesBy::Zone) => By::Zone,
            Some(given::WavesBy::All) => By::All,
        },
        max_parallel: share(given.max_parallel.as_ref(), 1, path("maxParallel"))?
            .unwrap_or(defaults.max_parallel),
        max_unavailable: share(given.max_unavailable.as_ref(), 0, path("maxUnavailable"))?
            .unwrap_or(defaults.max_unavailable),
        on_failure: match given.on_failure {
            None | Some(given::OnFailure::Rollback) => OnFailure::Rollback,
            Some(given::OnFailure::Pause) => OnFailure::Pause,
        },
        paused: given.paused.unwrap_or_default(),
        rollback_to,
        gates: Gates {
            max_failed: gates.max_failed_nodes.unwrap_or(held.max_failed),
            max_drifted: gates.max_drifted_nodes.unwrap_or(held.max_drifted),
            programming_p99: match &gates.programming_p99 {
                None => held.programming_p99,
                Some(text) => milliseconds(text, path("gates.programmingP99"))?,
            },
        },
    })
}

fn milliseconds(text: &str, field: String) -> Result<u64, FieldError> {
    let period: Result<Period, _> = text.parse();
    match period {
        Ok(period) => Ok(period.as_milliseconds()),
        Err(error) => Err(FieldError::new(field, error.to_string())),
    }
}

/// A number of nodes, or a percentage.
fn share(
    given: Option<&IntOrString>,
    least: u32,
    field: String,
) -> Result<Option<Share>, FieldError> {
    let read = |given: &IntOrString| match given {
        IntOrString::Int(number) => {
            let number = u32::try_from(*number).ok();
            number.filter(|number| *number >= least).map(Share::Count)
        }
        IntOrString::String(text) => {
            let percent: u32 = text.strip_suffix('%')?.parse().ok()?;
            (least..=100)
                .contains(&percent)
                .then_some(Share::Percent(percent))
        }
    };
    let Some(given) = given else { return Ok(None) };
    read(given).map(Some).ok_or_else(|| {
        let problem = format!("write a number of nodes from {least}, or a share like 10%");
        FieldError::new(field, problem)
    })
}

/// The stored state of the rollout.
///
/// # Errors
/// [`FieldError`] names a field that no controller writes this way.
pub fn rollout_state(stored: &given::RolloutStatus) -> Result<State, FieldError> {
    let number = |name: &str, field: &str| {
        let wrong = || FieldError::new(field, format!("{name:?} is not a revision"));
        revision_number(name).ok_or_else(wrong)
    };
    let target = number(&stored.target_revision, "status.rollout.targetRevision")?;
    let history = stored.history.iter().map(|record| {
        Ok(Revision {
            number: number(&record.revision, "status.rollout.history")?,
            content: record.content.as_str().into(),
            since: seconds(record.since.as_ref()),
        })
    });
    let stage = match (&stored.reached, stored.phase) {
        (Some(reached), _) => Stage::Rolling(progress(stored, reached, target)?),
        (None, given::RolloutPhase::RolledBack) => Stage::RolledBack {
            revision: target,
            again: stored.try_again,
        },
        (None, _) => Stage::Complete,
    };
    Ok(State {
        history: history.collect::<Result<_, _>>()?,
        current: number(&stored.current_revision, "status.rollout.currentRevision")?,
        stage,
        reason: stored.reason.clone().unwrap_or_default(),
    })
}

fn progress(
    stored: &given::RolloutStatus,
    reached: &given::ReachedNodes,
    target: u64,
) -> Result<Progress, FieldError> {
    let names = |names: &[String]| -> BTreeSet<Arc<str>> {
        names.iter().map(|name| name.as_str().into()).collect()
    };
    let zone = reached.zone.as_deref().unwrap_or_default();
    let wave = match reached.wave {
        given::WaveKind::Canary => Wave::Canary,
        given::WaveKind::Zone => Wave::Of(Scope::Zone(zone.into())),
        given::WaveKind::All => Wave::Of(Scope::All),
    };
    let through = reached.through.as_deref().map(|text| {
        let wrong = |_| FieldError::new("status.rollout.reached.through", "not a hash");
        u64::from_str_radix(text, 16).map_err(wrong)
    });
    let partly = match (&wave, through.transpose()?) {
        (Wave::Of(scope), Some(through)) => Some(Partly {
            scope: scope.clone(),
            through,
        }),
        _ => None,
    };
    Ok(Progress {
        target,
        reach: Reach {
            nodes: names(&reached.nodes),
            zones: names(&reached.zones),
            partly,
        },
        wave,
        soaking: stored
            .soaking_since
            .as_ref()
            .map(|time| seconds(Some(time))),
        touched_at: seconds(stored.touched_time.as_ref()),
        excused: names(&stored.excused_nodes),
        halted: stored.halted,
        waiting: stored.waiting_for.clone().unwrap_or_default(),
    })
}

pub(super) fn seconds(time: Option<&Time>) -> Moment {
    let seconds = time.map_or(0, |time| time.0.as_second());
    u64::try_from(seconds).unwrap_or_default()
}
