//! Kills a tool that does not end, with its children. A thread measures the time, because the caller is busy with the
//! input and the output of the tool.

use std::process::Child;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

/// The time limit of a running tool.
#[derive(Debug)]
pub(super) struct TimeLimit {
    ended: SyncSender<()>,
    /// Returns whether the tool was killed.
    watcher: JoinHandle<bool>,
}

impl TimeLimit {
    /// Begins. The tool must lead a process group.
    pub(super) fn begin(child: &Child, limit: Duration) -> std::io::Result<Self> {
        let group = Pid::from_child(child);
        let (ended, end) = sync_channel(1);
        let watch = move || match end.recv_timeout(limit) {
            // Its children too: they may keep its output open, and the caller reads the output to the end. Until then
            // the tool is not reaped, so no other process group has this number.
            // If the other side is gone, its end is not waited for any more.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                kill_process_group(group, Signal::KILL).is_ok()
            }
            Ok(()) => false,
        };
        let watcher = std::thread::Builder::new()
            .name("tool".into())
            .spawn(watch)?;
        Ok(Self { ended, watcher })
    }

    /// Ends the limit of a tool that has ended, with its output. Returns whether it was killed.
    pub(super) fn end(self) -> bool {
        match self.ended.send(()) {
            // It fails if the limit has passed.
            Ok(()) | Err(_) => self.watcher.join().unwrap_or_default(),
        }
    }
}
