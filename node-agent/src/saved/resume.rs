//! What a saved plan is used for before a controller was reached.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use portolan_plan::{DiskSettings, NodePlan, ServiceId};
use tracing::{info, warn};

use super::{Origin, SavedPlan};
use crate::slot::{PlanSlot, Source};

/// What is served of a saved plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// All of it.
    Whole,
    /// What the cluster needs to come up; the rest if no controller has spoken for so long.
    BootCritical {
        /// So long.
        rest_after: Duration,
    },
}

impl Resume {
    /// Decides by when a controller last stood behind it. Since the kernel was started it holds what the plan says, so the plan is as good as
    /// that. After a reboot pods may have other addresses, the more so the longer it is ago; a clock
    /// that says it was in the future tells nothing.
    pub fn decide(
        settings: &DiskSettings,
        of_this_boot: bool,
        confirmed: SystemTime,
        now: SystemTime,
    ) -> Self {
        let age = now.duration_since(confirmed);
        if of_this_boot || age.is_ok_and(|age| age <= settings.max_age.as_duration()) {
            return Self::Whole;
        }
        Self::BootCritical {
            rest_after: settings.grace.as_duration(),
        }
    }
}

/// Puts the saved plan into the slot, as far as it is to be used, and waits until all of it is, if a
/// controller does not come first. Whatever is wrong with it is logged, and the agent waits for a
/// controller as if there were none.
pub async fn bring_back(saved: &SavedPlan, slot: &Arc<PlanSlot>, now: SystemTime) {
    let Some((plan, origin)) = read(saved) else {
        return;
    };
    let Some(node) = plan.node() else {
        return;
    };
    let of_this_boot = saved.is_of_this_boot(&origin);
    let age = now.duration_since(origin.confirmed).unwrap_or_default();
    let seconds = age.as_secs();
    let services = plan.heads().count();
    match Resume::decide(&node.settings.disk, of_this_boot, origin.confirmed, now) {
        Resume::Whole => {
            info!(services, seconds, of_this_boot, "serving the plan on disk");
            slot.bring_back(plan, Source::Disk);
        }
        Resume::BootCritical { rest_after } => {
            let critical = boot_critical(&plan);
            let serving = critical.len();
            warn!(
                services,
                serving,
                seconds,
                "the plan on disk is old: serving boot-critical Services, and the others if no \
                 controller comes"
            );
            slot.bring_back(plan.part(&critical), Source::BootCritical);
            // Not kept meanwhile: most of the time a controller comes.
            drop(plan);
            tokio::time::sleep(rest_after).await;
            if slot.is_live() {
                return;
            }
            if let Some((plan, _)) = read(saved) {
                warn!(
                    services,
                    "no controller came: serving all of the plan on disk"
                );
                slot.bring_back(plan, Source::Disk);
            }
        }
    }
}

fn read(saved: &SavedPlan) -> Option<(NodePlan, Origin)> {
    saved.read().unwrap_or_else(|problem| {
        warn!(%problem, "waiting for a controller");
        None
    })
}

fn boot_critical(plan: &NodePlan) -> Vec<ServiceId> {
    let critical = plan.heads().filter(|(_, head)| head.boot_critical);
    critical.map(|(service, _)| service.clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_plan_of_this_boot_or_a_young_one_is_served_whole() {
        let settings = DiskSettings::default();
        let written = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let rest = Resume::BootCritical {
            rest_after: Duration::from_secs(60),
        };
        for (of_this_boot, age, resume) in [
            (true, 0, Resume::Whole),
            (true, 86_400, Resume::Whole),
            (false, 600, Resume::Whole),
            (false, 601, rest),
        ] {
            let now = written + Duration::from_secs(age);
            let decided = Resume::decide(&settings, of_this_boot, written, now);
            assert_eq!(decided, resume, "of this boot: {of_this_boot}, {age} s old");
        }
        let before = written - Duration::from_secs(1);
        assert_eq!(
            Resume::decide(&settings, false, written, before),
            rest,
            "a clock that was set back does not make a plan young"
        );
        assert_eq!(
            Resume::decide(&settings, true, written, before),
            Resume::Whole
        );
    }
}
