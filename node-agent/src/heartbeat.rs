//! Counts the steps of a thread, so that `watchdog` detects when it hangs.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static OWN: RefCell<Option<Heartbeat>> = const { RefCell::new(None) };
}

/// The number of steps that a thread has completed.
#[derive(Debug, Clone, Default)]
pub struct Heartbeat(Arc<AtomicU64>);

impl Heartbeat {
    /// Makes it the heartbeat of the calling thread.
    pub(crate) fn adopt(&self) {
        OWN.set(Some(self.clone()));
    }

    /// Records a completed step.
    pub(crate) fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of steps.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Records a completed step of the calling thread, if it has a heartbeat. Each wait for the kernel or for a tool is
/// followed by one, so that a pass of many long steps is not a hang.
pub(crate) fn beat() {
    OWN.with_borrow(|own| {
        if let Some(own) = own {
            own.beat();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_counts_for_its_own_thread() {
        let [own, other] = [Heartbeat::default(), Heartbeat::default()];
        own.adopt();
        beat();
        let of_thread = other.clone();
        let thread = std::thread::spawn(move || {
            beat();
            of_thread.adopt();
            beat();
            beat();
        });
        thread.join().unwrap();
        assert_eq!((own.count(), other.count()), (1, 2));
    }
}
