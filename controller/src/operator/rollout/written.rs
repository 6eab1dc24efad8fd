//! The stored form of the rollout state. Pure. `from_kube::rollout_state` reads it back without loss.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_crds as crds;
use portolan_crds::limit;
use portolan_rollout_policy::{Moment, Phase, Policy, Progress, Scope, Stage, State, Tally, Wave};

use crate::from_kube::revision_name;

/// The status of a state. Without a new tally the previous counts stay.
pub fn rollout_status(
    state: &State,
    policy: Option<&Policy>,
    tally: Option<&Tally>,
    before: &crds::RolloutStatus,
) -> crds::RolloutStatus {
    let mut status = crds::RolloutStatus {
        phase: phase(state.phase(policy)),
        current_revision: revision_name(state.current),
        target_revision: revision_name(state.target()),
        reason: some(&state.reason),
        history: history(state),
        ..crds::RolloutStatus::default()
    };
    match &state.stage {
        Stage::Complete => {}
        Stage::RolledBack { again, .. } => status.try_again = *again,
        Stage::Rolling(progress) => {
            let same = before.target_revision == status.target_revision;
            let count = |count: usize| Some(u32::try_from(count).unwrap_or(u32::MAX));
            let figures = match tally {
                Some(tally) => (count(tally.touched), count(tally.total)),
                None if same => (before.touched_nodes, before.total_nodes),
                None => (None, None),
            };
            (status.touched_nodes, status.total_nodes) = figures;
            status.wave = Some(progress.wave.to_string());
            status.waiting_for = some(&progress.waiting);
            status.reached = Some(reached(progress));
            status.soaking_since = progress.soaking.map(moment);
            status.touched_time = Some(moment(progress.touched_at));
            status.excused_nodes = names(&progress.excused);
            status.halted = progress.halted;
        }
    }
    status
}

fn phase(phase: Phase) -> crds::RolloutPhase {
    match phase {
        Phase::Complete => crds::RolloutPhase::Complete,
        Phase::Progressing => crds::RolloutPhase::Progressing,
        Phase::Soaking => crds::RolloutPhase::Soaking,
        Phase::Paused => crds::RolloutPhase::Paused,
        Phase::Halted => crds::RolloutPhase::Halted,
        Phase::RolledBack => crds::RolloutPhase::RolledBack,
    }
}

fn reached(progress: &Progress) -> crds::ReachedNodes {
    let (wave, zone) = match &progress.wave {
        Wave::Canary => (crds::WaveKind::Canary, None),
        Wave::Of(Scope::Zone(zone)) => (crds::WaveKind::Zone, some(zone)),
        Wave::Of(Scope::All) => (crds::WaveKind::All, None),
    };
    let partly = progress.reach.partly.as_ref();
    crds::ReachedNodes {
        wave,
        zone,
        through: partly.map(|part| format!("{:016x}", part.through)),
        nodes: names(&progress.reach.nodes),
        zones: names(&progress.reach.zones),
    }
}

fn history(state: &State) -> Vec<crds::RevisionRecord> {
    let record = |held: &portolan_rollout_policy::Revision| crds::RevisionRecord {
        revision: revision_name(held.number),
        since: Some(moment(held.since)),
        content: held.content.to_string(),
    };
    state.history.iter().map(record).collect()
}

fn names(names: &BTreeSet<Arc<str>>) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// The text, shortened to the limit of the API; `None` if it is empty.
fn some(text: &str) -> Option<String> {
    let text: String = text.chars().take(limit::MESSAGE_CHARS).collect();
    (!text.is_empty()).then_some(text)
}

fn moment(seconds: Moment) -> Time {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Time(Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH))
}
