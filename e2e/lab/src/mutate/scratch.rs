//! A copy of the clone's sources in the lab's cache, with its own target folder.
//!
//! Invariant: unchanged files keep their times, so that only differences are compiled. Only one run at a time uses
//! it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{cache, mirror};

/// The copy.
pub(super) struct Scratch {
    /// The folder of the cache that holds everything.
    pub(super) folder: PathBuf,
    /// The workspace's folder in the copy.
    pub(super) clone: PathBuf,
    /// The target folder.
    pub(super) target: PathBuf,
    /// Held until it is dropped.
    _lock: File,
}

impl Scratch {
    /// Makes it equal to the clone: files tracked by git, and new files that are not ignored.
    ///
    /// # Errors
    /// The folder is not a git clone, or the cache cannot be written.
    pub(super) fn prepare(root: &Path) -> Result<Self> {
        let folder = cache::folder("mutations")?;
        let waiting = "another run of `cargo lab mutate` has the copy; waiting for it";
        let file = cache::lock(&folder.join("lock"), waiting)?;
        let scratch = Self {
            clone: folder.join("clone"),
            target: folder.join("target"),
            folder,
            _lock: file,
        };
        // An interrupted run may have left incomplete incremental data.
        let increments = scratch.target.join("debug/incremental");
        if increments.exists() {
            fs::remove_dir_all(&increments)
                .with_context(|| format!("removing {}", increments.display()))?;
        }
        mirror::update(root, &scratch.clone)?;
        Ok(scratch)
    }

    /// A file of the copy.
    ///
    /// # Errors
    /// It does not exist, or is not text.
    pub(super) fn read(&self, path: &Path) -> Result<String> {
        fs::read_to_string(self.clone.join(path))
            .with_context(|| format!("reading {}", path.display()))
    }

    /// Changes a file of the copy.
    ///
    /// # Errors
    /// The cache cannot be written.
    pub(super) fn write(&self, path: &Path, text: &str) -> Result<()> {
        let path = self.clone.join(path);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }
}
