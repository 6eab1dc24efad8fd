//! Notices when another program changes a kernel setting. The kernel sends no event for that, and inotify does not work
//! on `/proc/sys`, so the few files are compared once a second.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::sysctl;
use crate::kernel::KernelError;

const INTERVAL: Duration = Duration::from_secs(1);

/// The settings as they were read last, and what the agent wrote since.
#[derive(Debug, Clone, Default)]
pub struct KnownSettings(Arc<Mutex<BTreeMap<Arc<str>, Arc<str>>>>);

impl KnownSettings {
    /// Adds what was read: often only a part of the settings.
    pub(super) fn note(&self, settings: &BTreeMap<Arc<str>, Arc<str>>) {
        let settings = settings.iter();
        let settings = settings.map(|(name, value)| (name.clone(), value.clone()));
        self.with(|known| known.extend(settings));
    }

    /// Reads a setting that the agent wrote.
    pub(super) fn refresh(&self, name: &Arc<str>) {
        if let Some((name, value)) = sysctl::read(name) {
            self.with(|known| known.insert(name, value));
        }
    }

    /// Reads all settings. Returns whether one differs, once for each change.
    fn differ(&self) -> bool {
        let names: Vec<_> = self.with(|known| known.keys().cloned().collect());
        let found: Vec<_> = names.iter().filter_map(sysctl::read).collect();
        self.with(|known| {
            let mut differ = false;
            for (name, value) in found {
                let before = known.insert(name, value.clone());
                differ |= before.is_some_and(|before| before != value);
            }
            differ
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<Arc<str>, Arc<str>>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A thread that compares the settings, until it is dropped.
#[derive(Debug)]
pub struct SettingsWatch {
    // Dropping this end ends the thread.
    life: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl SettingsWatch {
    /// Calls `notify` after a change, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// If the thread cannot be created.
    pub fn start(
        known: KnownSettings,
        notify: impl Fn() + Send + 'static,
    ) -> Result<Self, KernelError> {
        let (life, end) = sync_channel::<()>(0);
        let compare = move || {
            while end.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if known.differ() {
                    notify();
                }
            }
        };
        let thread = std::thread::Builder::new().name("kernel settings".into());
        let thread = thread.spawn(compare).map_err(|error| {
            KernelError::new(
                "watch kernel settings",
                &format_args!("start a thread: {error}"),
            )
        })?;
        Ok(Self {
            life: Some(life),
            thread: Some(thread),
        })
    }
}

impl Drop for SettingsWatch {
    fn drop(&mut self) {
        drop(self.life.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
