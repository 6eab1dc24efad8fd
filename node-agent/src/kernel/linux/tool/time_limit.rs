//! Kills a tool that does not end, with its children. A thread waits for the end of the tool, because the caller is busy
//! with the input and the output of the tool.

use std::os::fd::OwnedFd;
use std::process::Child;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// The time limit of a running tool.
#[derive(Debug)]
pub(super) struct TimeLimit {
    /// Returns whether the tool was killed.
    watcher: JoinHandle<bool>,
}

impl TimeLimit {
    /// Begins. The tool must lead a process group.
    pub(super) fn begin(child: &Child, limit: Duration) -> std::io::Result<Self> {
        let group = Pid::from_child(child);
        let handle = pidfd_open(group, PidfdFlags::empty())?;
        let watcher = std::thread::Builder::new()
            .name("tool".into())
            .spawn(move || kill_after(limit, &handle, group))?;
        Ok(Self { watcher })
    }

    /// Whether the tool, which has ended, was killed.
    pub(super) fn was_exceeded(self) -> bool {
        self.watcher.join().unwrap_or_default()
    }
}

fn kill_after(limit: Duration, handle: &OwnedFd, group: Pid) -> bool {
    if ends_within(limit, handle) {
        return false;
    }
    // Its children too: they may keep its output open, and the caller reads the output to the end.
    kill_process_group(group, Signal::KILL).is_ok()
}

/// Waits for the end of a process, up to the limit.
fn ends_within(limit: Duration, handle: &OwnedFd) -> bool {
    let begin = Instant::now();
    loop {
        let left = limit.saturating_sub(begin.elapsed());
        let left = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(handle, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return false,
            Err(Errno::INTR) => {}
            // An unexpected error must not end a tool that works.
            Ok(_) | Err(_) => return true,
        }
    }
}
