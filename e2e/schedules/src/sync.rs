//! The module `sync` of the included files, with types of shuttle.

use std::sync::Arc;

use shuttle::future::block_on;
use shuttle::thread;
use tokio::sync::futures::Notified;

pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};

/// The signal of tokio. Another thread may run before each of its operations; an operation itself is one step.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    signal: tokio::sync::Notify,
    point: AtomicBool,
}

impl Notify {
    pub(crate) fn notify_one(&self) {
        self.let_others_run();
        self.signal.notify_one();
    }

    pub(crate) fn notify_waiters(&self) {
        self.let_others_run();
        self.signal.notify_waiters();
    }

    pub(crate) fn notified(&self) -> Notified<'_> {
        self.let_others_run();
        self.signal.notified()
    }

    /// Each operation of shuttle is a place where it may choose another thread.
    fn let_others_run(&self) {
        self.point.store(true, Ordering::SeqCst);
    }
}

/// A deliberate fault: a thread looks at a flag before it listens to the signal. It shows that lost wake-ups are found.
pub fn lost_wake_up() {
    let shared: Arc<(AtomicBool, Notify)> = Arc::default();
    let setter = shared.clone();
    let sets = thread::spawn(move || {
        setter.0.store(true, Ordering::SeqCst);
        setter.1.notify_waiters();
    });
    let (flag, signal) = &*shared;
    if !flag.load(Ordering::SeqCst) {
        block_on(signal.notified());
    }
    sets.join().unwrap();
}
