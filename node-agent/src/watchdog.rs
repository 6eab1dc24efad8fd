//! Detects that a part of the program hangs: neither the thread that programs the kernel nor the runtime can report
//! itself. After a while it ends the program, which is then started again; the kernel state stays.
//!
//! It has a thread of its own, and counts its own turns instead of time: a program that was suspended, or that gets no
//! processor, does not hang.
//!
//! Touches: `/proc/self/task`, for reading.

use std::convert::Infallible;
use std::fs;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use tracing::{error, info};

use crate::heartbeat::Heartbeat;
use crate::plan_watch::PlanWatch;

/// Interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Time without progress after which a hang is reported. Waits have limits of their own: 10 s for a netlink reply, 60 s
/// for a tool.
const REPORT_AFTER: Duration = Duration::from_secs(90);
/// Time without progress after which the program ends. Much longer than thousands of operations of a slow kernel, which
/// are one step.
const END_AFTER: Duration = Duration::from_secs(600);

const CHECKS_TO_REPORT: u64 = REPORT_AFTER.as_secs() / CHECK_INTERVAL.as_secs();
const CHECKS_TO_END: u64 = END_AFTER.as_secs() / CHECK_INTERVAL.as_secs();

/// The name of the thread that programs the kernel.
pub(crate) const PROGRAMMER: &str = "programmer";
/// The name of the main thread, on which the runtime is.
const RUNTIME: &str = "portolan-agent";

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finding {
    Fine,
    /// It hangs; found once.
    Hangs,
    /// It works again.
    Back,
    /// It hangs for too long.
    Lost,
}

/// The observed progress of one part.
#[derive(Debug, Default)]
struct Watched {
    last: Option<u64>,
    /// Number of checks without progress.
    checks: u64,
}

impl Watched {
    /// `progress` is `None` while the part waits for work.
    fn check(&mut self, progress: Option<u64>) -> Finding {
        let moved = progress.is_none() || progress != self.last;
        self.last = progress;
        if moved {
            let hung = std::mem::take(&mut self.checks) >= CHECKS_TO_REPORT;
            return if hung { Finding::Back } else { Finding::Fine };
        }
        self.checks = self.checks.saturating_add(1);
        match self.checks {
            CHECKS_TO_REPORT => Finding::Hangs,
            CHECKS_TO_END.. => Finding::Lost,
            _ => Finding::Fine,
        }
    }
}

/// A running watchdog. Dropping it ends the checks.
#[derive(Debug)]
pub(crate) struct Watchdog {
    _ends: SyncSender<Infallible>,
}

/// Checks the thread that takes plans, and the runtime whose heartbeat this is.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start(plans: Arc<PlanWatch>, runtime: Heartbeat) -> std::io::Result<Watchdog> {
    let (ends, ended) = sync_channel(0);
    let watch = move || {
        let (mut programmer, mut tasks) = (Watched::default(), Watched::default());
        while ended.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            act(programmer.check(plans.progress()), PROGRAMMER);
            act(tasks.check(Some(runtime.count())), RUNTIME);
        }
    };
    std::thread::Builder::new()
        .name("watchdog".into())
        .spawn(watch)?;
    Ok(Watchdog { _ends: ends })
}

/// Shows that the runtime makes progress, until the program ends.
pub(crate) async fn show(runtime: Heartbeat) {
    loop {
        runtime.beat();
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

fn act(finding: Finding, thread: &str) {
    match finding {
        Finding::Fine => {}
        Finding::Hangs => report(thread),
        Finding::Back => info!(thread, "the thread works again"),
        // The end of the program would wait for it, and a new one would hang in the same place.
        Finding::Lost if is_uninterruptible(thread) => {}
        Finding::Lost => {
            let seconds = END_AFTER.as_secs();
            error!(
                thread,
                seconds,
                "the thread still hangs: this program ends, so that it is started again; the programmed state stays"
            );
            std::process::abort();
        }
    }
}

/// Logs where to look: only the kernel knows where a thread hangs.
fn report(thread: &str) {
    let (seconds, process) = (REPORT_AFTER.as_secs(), std::process::id());
    error!(
        thread,
        seconds,
        "the thread hangs: no change reaches the kernel; the programmed state stays. Check \
         /proc/{process}/task/*/stack of this thread, and dmesg; if `cat /proc/net/ip_vs` hangs as well, IPVS itself \
         is locked, and only a reboot of the node helps"
    );
}

/// Whether a thread of this program waits in the kernel and cannot be ended.
fn is_uninterruptible(thread: &str) -> bool {
    let tasks = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    tasks.map(|task| task.path()).any(|task| {
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
        name.trim_end() == thread && state(&stat) == Some('D')
    })
}

/// The state in a `stat` file (proc_pid_stat(5)): the first letter after the name, which may contain anything.
fn state(stat: &str) -> Option<char> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings of checks of a part that waits, or whose count is this.
    fn findings(checks: impl IntoIterator<Item = Option<u64>>) -> Vec<(usize, Finding)> {
        let mut watched = Watched::default();
        let found = checks.into_iter().map(|progress| watched.check(progress));
        let found = found.enumerate();
        found
            .filter(|(_, finding)| *finding != Finding::Fine)
            .collect()
    }

    fn times(progress: Option<u64>, seconds: u64) -> impl Iterator<Item = Option<u64>> {
        let checks = seconds / CHECK_INTERVAL.as_secs();
        std::iter::repeat_n(progress, usize::try_from(checks).unwrap())
    }

    #[test]
    fn a_hang_and_its_end_are_reported_once_each() {
        let hangs = times(Some(1), 300).chain([Some(2), Some(3)]);
        let expected = [(18, Finding::Hangs), (60, Finding::Back)];
        assert_eq!(findings(hangs), expected);
        let until_idle = times(Some(1), 300).chain([None, None]);
        assert_eq!(findings(until_idle), expected);
    }

    #[test]
    fn a_hang_that_lasts_ends_the_program() {
        let lasts = findings(times(Some(1), 610));
        assert_eq!(
            lasts,
            [
                (18, Finding::Hangs),
                (120, Finding::Lost),
                (121, Finding::Lost)
            ]
        );
    }

    #[test]
    fn waiting_and_a_pass_of_many_long_steps_are_no_hangs() {
        assert!(findings(times(None, 3600)).is_empty());
        let steps = (0..40).flat_map(|step| times(Some(step), 60));
        assert!(findings(steps).is_empty());
    }

    #[test]
    fn the_state_of_a_thread_is_read_whatever_its_name() {
        assert_eq!(state("12 (programmer) D 1 12"), Some('D'));
        assert_eq!(state("12 (a) D) (b) S 1 12"), Some('S'));
        assert_eq!(state("12 (a"), None);
        let name = "sleeps-here";
        let (end, ended) = sync_channel::<Infallible>(0);
        let sleeps = move || ended.recv_timeout(Duration::from_secs(60));
        let thread = std::thread::Builder::new().name(name.into());
        let thread = thread.spawn(sleeps).unwrap();
        assert!(!is_uninterruptible(name));
        drop(end);
        assert!(thread.join().unwrap().is_err());
    }
}
