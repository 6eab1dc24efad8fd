//! Detects that the thread which programs the kernel hangs: it cannot itself report a system call of IPVS or ipset
//! that never returns.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{error, info};

use crate::plan_watch::PlanWatch;

/// Longer than any pass that makes progress: its waits have limits of their own, 10 s for a netlink reply and 60 s for
/// each of up to six tools.
const HANG_TIMEOUT: Duration = Duration::from_secs(420);
/// Interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The observed state of the thread.
#[derive(Debug, Default)]
struct Watch {
    /// The number of the current work, and when it was first observed.
    work: Option<(u64, Instant)>,
    /// Whether the present hang was reported.
    reported: bool,
}

/// A transition to report.
#[derive(Debug, PartialEq, Eq)]
enum Transition {
    Stuck(Duration),
    Back,
}

impl Watch {
    fn check(&mut self, work: Option<u64>, now: Instant) -> Option<Transition> {
        let Some(work) = work else {
            self.work = None;
            return std::mem::take(&mut self.reported).then_some(Transition::Back);
        };
        let since = match self.work {
            Some((same, since)) if same == work => since,
            _ => now,
        };
        self.work = Some((work, since));
        let takes = now.duration_since(since);
        if takes < HANG_TIMEOUT {
            // The work number changed, so the previous work has ended.
            let back = self.reported && takes.is_zero();
            self.reported &= !back;
            return back.then_some(Transition::Back);
        }
        (!std::mem::replace(&mut self.reported, true)).then_some(Transition::Stuck(takes))
    }
}

/// Checks the thread until the program ends.
pub(crate) async fn watch(plans: Arc<PlanWatch>) {
    let mut watch = Watch::default();
    loop {
        match watch.check(plans.work(), Instant::now()) {
            Some(Transition::Stuck(takes)) => stuck(takes),
            Some(Transition::Back) => info!("the thread that programs the kernel works again"),
            None => {}
        }
        sleep(CHECK_INTERVAL).await;
    }
}

/// Logs where to look: only the kernel knows where the thread hangs.
fn stuck(takes: Duration) {
    let (seconds, process) = (takes.as_secs(), std::process::id());
    error!(
        seconds,
        "the thread that programs the kernel hangs: no plan reaches the kernel; the programmed state stays. \
         Check /proc/{process}/task/*/stack of the thread \"programmer\", and dmesg; if \
         `cat /proc/net/ip_vs` hangs as well, IPVS itself is locked, and only a reboot of the node helps"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hang_and_its_end_are_reported_once_each() {
        let start = Instant::now();
        let mut watch = Watch::default();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(watch.check(None, at(0)), None);
        assert_eq!(watch.check(Some(1), at(10)), None);
        assert_eq!(watch.check(Some(1), at(429)), None);
        let stuck = Some(Transition::Stuck(HANG_TIMEOUT));
        assert_eq!(watch.check(Some(1), at(430)), stuck);
        assert_eq!(watch.check(Some(1), at(435)), None);
        assert_eq!(watch.check(None, at(440)), Some(Transition::Back));
        assert_eq!(watch.check(None, at(445)), None);
    }

    #[test]
    fn a_sequence_of_passes_is_not_a_hang() {
        let start = Instant::now();
        let mut watch = Watch::default();
        for second in 0..1000 {
            let now = start + Duration::from_secs(second);
            assert_eq!(watch.check(Some(second / 60), now), None, "{second}");
        }
        let now = start + Duration::from_secs(2000);
        assert!(matches!(
            watch.check(Some(16), now),
            Some(Transition::Stuck(_))
        ));
        let now = start + Duration::from_secs(2005);
        assert_eq!(watch.check(Some(17), now), Some(Transition::Back));
    }
}
