//! The status that was written last. The next one is compared with it, and keeps its transition times.

use std::sync::Arc;
use std::time::SystemTime;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use portolan_crds as crds;
use portolan_crds::condition;

use super::status::{Judgement, Verdict};
use crate::from_kube;

/// The status of a condition and its last transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Since {
    /// The status of the condition.
    pub verdict: Verdict,
    /// The last transition, in whole seconds.
    pub time: SystemTime,
}

/// The statuses of the conditions that were written last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdicts {
    pub(super) applied: Option<Verdict>,
    pub(super) healthy: Option<Verdict>,
    pub(super) drifted: Option<Verdict>,
    pub(super) settings: Option<Verdict>,
}

/// The fields of a node's last written status that the next one needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Previous {
    /// The version of its agent. The rollout of agents watches it.
    pub(super) agent_version: Option<Arc<str>>,
    /// The name of its agent's pod, for the same reason.
    pub(super) agent_pod: Option<Arc<str>>,
    /// The revision of the settings that were in force.
    pub(super) revision: Option<u64>,
    pub(super) applied: Option<Since>,
    pub(super) healthy: Option<Since>,
    pub(super) drifted: Option<Since>,
    pub(super) settings: Option<Since>,
}

impl Previous {
    /// Reads a stored status.
    pub fn read(status: &crds::ProxyPlanStatus) -> Self {
        let of = |kind| since(&status.conditions, kind);
        let revision = status.settings_revision.as_deref();
        Self {
            agent_version: status.agent_version.as_deref().map(Arc::from),
            agent_pod: status.agent_pod.as_deref().map(Arc::from),
            revision: revision.and_then(from_kube::revision_number),
            applied: of(condition::APPLIED),
            healthy: of(condition::HEALTHY),
            drifted: of(condition::DRIFTED),
            settings: of(condition::KERNEL_SETTINGS),
        }
    }

    /// Whether writing this judgement would change a condition.
    pub fn differs_from(&self, judgement: &Judgement) -> bool {
        let before = self.verdicts();
        before.applied != Some(judgement.applied.verdict)
            || before.healthy != Some(judgement.healthy.verdict)
            || before.drifted != Some(judgement.drifted.verdict)
            || before.settings != Some(judgement.settings.verdict)
    }

    pub(super) fn verdicts(&self) -> Verdicts {
        let verdict = |since: Option<Since>| since.map(|since| since.verdict);
        Verdicts {
            applied: verdict(self.applied),
            healthy: verdict(self.healthy),
            drifted: verdict(self.drifted),
            settings: verdict(self.settings),
        }
    }
}

/// The status and last transition of the condition of this type.
pub(crate) fn since(conditions: &[Condition], kind: &str) -> Option<Since> {
    let condition = conditions
        .iter()
        .find(|condition| condition.type_ == kind)?;
    Some(Since {
        verdict: Verdict::read(&condition.status),
        time: condition.last_transition_time.0.into(),
    })
}
