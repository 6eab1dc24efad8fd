//! One lab at a time on a machine: an advisory lock that ends with its holder, however that ends.

use std::fs::File;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::waits::Waits;

const PATH: &str = "/run/portolan-scenarios.lock";

/// The lock, while it is held.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for it.
    pub(super) fn take(waits: Waits) -> Result<Self> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(PATH)
            .with_context(|| format!("open {PATH} (needs root)"))?;
        waits.until(
            "the lab on this machine to be free",
            Duration::from_secs(60),
            Duration::from_millis(200),
            || match file.try_lock() {
                Ok(()) => Ok(Some(())),
                Err(std::fs::TryLockError::WouldBlock) => Ok(None),
                Err(std::fs::TryLockError::Error(error)) => {
                    Err(error).with_context(|| format!("lock {PATH}"))
                }
            },
            || format!("another run of portolan-scenarios holds {PATH}"),
        )?;
        Ok(Self { _file: file })
    }
}
