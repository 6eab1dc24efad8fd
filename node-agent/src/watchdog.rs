//! Sees that the thread which programs the kernel does not come back: a system call of IPVS or of sets
//! that never ends cannot be told by the thread itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{error, info};

use crate::slot::PlanSlot;

/// Longer than any pass takes that goes on: what waits in it has limits of its own, an answer of netlink
/// 10 s and the lock of iptables 5 s.
const LIMIT: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_secs(5);

/// What is known of the thread.
#[derive(Debug, Default)]
struct Watch {
    /// The work it was last seen at, and since when.
    work: Option<(u64, Instant)>,
    told: bool,
}

/// What to say.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Stuck(Duration),
    Back,
}

impl Watch {
    fn look(&mut self, work: Option<u64>, now: Instant) -> Option<News> {
        let Some(work) = work else {
            self.work = None;
            return std::mem::take(&mut self.told).then_some(News::Back);
        };
        let since = match self.work {
            Some((same, since)) if same == work => since,
            _ => now,
        };
        self.work = Some((work, since));
        let takes = now.duration_since(since);
        if takes < LIMIT {
            // Another piece of work: the one before has ended.
            let back = self.told && takes.is_zero();
            self.told &= !back;
            return back.then_some(News::Back);
        }
        (!std::mem::replace(&mut self.told, true)).then_some(News::Stuck(takes))
    }
}

/// Looks for as long as the program runs.
pub(crate) async fn watch(slot: Arc<PlanSlot>) {
    let mut watch = Watch::default();
    loop {
        match watch.look(slot.work(), Instant::now()) {
            Some(News::Stuck(takes)) => stuck(takes),
            Some(News::Back) => info!("the thread that programs the kernel works again"),
            None => {}
        }
        sleep(LOOK).await;
    }
}

/// Names what to look at: only the kernel knows where the thread is.
fn stuck(takes: Duration) {
    let (seconds, process) = (takes.as_secs(), std::process::id());
    error!(
        seconds,
        "the thread that programs the kernel has not come back: no plan is put in force; what is \
         programmed stays. Look at /proc/{process}/task/*/stack of the thread \"programmer\", and at \
         dmesg; `cat /proc/net/ip_vs` that hangs as well says that IPVS itself is locked, and only a \
         reboot of the node helps"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_does_not_come_back_is_told_once_and_so_is_its_return() {
        let start = Instant::now();
        let mut watch = Watch::default();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(watch.look(None, at(0)), None);
        assert_eq!(watch.look(Some(1), at(10)), None);
        assert_eq!(watch.look(Some(1), at(99)), None);
        let stuck = Some(News::Stuck(Duration::from_secs(90)));
        assert_eq!(watch.look(Some(1), at(100)), stuck);
        assert_eq!(watch.look(Some(1), at(105)), None);
        assert_eq!(watch.look(None, at(110)), Some(News::Back));
        assert_eq!(watch.look(None, at(115)), None);
    }

    #[test]
    fn pass_after_pass_is_no_standstill() {
        let start = Instant::now();
        let mut watch = Watch::default();
        for second in 0..1000 {
            let now = start + Duration::from_secs(second);
            assert_eq!(watch.look(Some(second / 60), now), None, "{second}");
        }
        let now = start + Duration::from_secs(2000);
        assert!(matches!(watch.look(Some(16), now), Some(News::Stuck(_))));
        let now = start + Duration::from_secs(2005);
        assert_eq!(watch.look(Some(17), now), Some(News::Back));
    }
}
