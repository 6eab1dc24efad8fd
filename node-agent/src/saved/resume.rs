//! Restores the saved plan from disk after a restart or reboot, until a controller is reached.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use portolan_plan::{DiskSettings, NodePlan, ServiceId};
use tracing::{info, warn};

use super::{Origin, SavedPlan};
use crate::plan_watch::{PlanWatch, Source};

/// The part of a saved plan to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// The complete plan.
    Whole,
    /// The Services that the cluster needs to start, and the rest if no controller is reached in time.
    BootCritical {
        /// Time until the rest is served.
        rest_after: Duration,
    },
}

impl Resume {
    /// Decides by the time when a controller last confirmed the plan. A plan of this boot is served completely,
    /// because the kernel already holds its state. After a reboot pods may have other addresses, which is more likely
    /// the older the plan is. A time in the future is ignored, because the clock is wrong.
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

/// Publishes the usable part of the saved plan in `plans`, and the complete plan after the grace period unless a
/// controller is reached first. A plan that cannot be used is logged and ignored.
pub async fn restore_saved(saved: &SavedPlan, plans: &Arc<PlanWatch>, now: SystemTime) {
    let Some((plan, origin)) = read(saved) else {
        return;
    };
    let Some(node) = plan.node() else {
        return;
    };
    let of_this_boot = saved.is_of_this_boot(&origin);
    let age = now.duration_since(origin.confirmed).unwrap_or_default();
    let age_seconds = age.as_secs();
    let services = plan.heads().count();
    match Resume::decide(&node.settings.disk, of_this_boot, origin.confirmed, now) {
        Resume::Whole => {
            info!(
                services,
                age_seconds, of_this_boot, "serving the saved plan"
            );
            plans.restore_saved(plan, Source::Disk);
        }
        Resume::BootCritical { rest_after } => {
            let critical = boot_critical(&plan);
            let serving = critical.len();
            let grace_seconds = rest_after.as_secs();
            warn!(
                services,
                serving,
                age_seconds,
                grace_seconds,
                "the saved plan is old: serving only boot-critical Services; the others follow after the grace period \
                 (settings.disk.grace) if no controller is reached"
            );
            plans.restore_saved(plan.part(&critical), Source::BootCritical);
            // Free its memory and read it again if needed: usually a controller is reached first.
            drop(plan);
            tokio::time::sleep(rest_after).await;
            if plans.is_live() {
                return;
            }
            if let Some((plan, _)) = read(saved) {
                warn!(
                    services,
                    "no controller was reached: serving the complete saved plan"
                );
                plans.restore_saved(plan, Source::Disk);
            }
        }
    }
}

fn read(saved: &SavedPlan) -> Option<(NodePlan, Origin)> {
    saved.read().unwrap_or_else(|problem| {
        warn!(%problem, "cannot use the saved plan; waiting for a controller");
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
    fn a_plan_of_this_boot_or_a_recent_one_is_served_completely() {
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
            "a clock that was set back does not make a plan recent"
        );
        assert_eq!(
            Resume::decide(&settings, true, written, before),
            Resume::Whole
        );
    }
}
