//! The folder of one run: manifests, logs, state and the controller's socket.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

/// A folder that goes when it is dropped.
#[derive(Debug)]
pub(crate) struct WorkFolder {
    pub(crate) path: PathBuf,
}

impl WorkFolder {
    pub(crate) fn make() -> Result<Self> {
        // Short, because the path of a Unix socket has room for 107 bytes.
        Self::make_in(&[Path::new("/run"), &std::env::temp_dir()], 0o755)
    }

    /// On a disk and for this user only: for data that may grow, and for keys.
    pub(crate) fn private() -> Result<Self> {
        Self::make_in(&[&std::env::temp_dir()], 0o700)
    }

    fn make_in(parents: &[&Path], mode: u32) -> Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("portolan-scenarios-{}-{number}", std::process::id());
        let path = parents
            .iter()
            .map(|parent| parent.join(&name))
            .find(|path| std::fs::DirBuilder::new().mode(mode).create(path).is_ok())
            .with_context(|| {
                let shown: Vec<_> = parents
                    .iter()
                    .map(|path| path.display().to_string())
                    .collect();
                format!("make a folder {name} in {}", shown.join(" or "))
            })?;
        Ok(Self { path })
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            crate::console::complain(&format!("{} was not removed: {error}", self.path.display()));
        }
    }
}
