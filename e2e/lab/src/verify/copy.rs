//! The copy of the clone in which everything is built and run.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::inputs::{File, Files};
use crate::{cache, mirror, nested};

/// The copy. Only one run at a time uses it.
pub(super) struct Copy {
    pub(super) clone: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) target: PathBuf,
    pub(super) files: Files,
    /// Held until it is dropped.
    _lock: std::fs::File,
}

impl Copy {
    pub(super) fn update() -> Result<Self> {
        let base = cache::folder("verify")?;
        let lock = cache::lock(
            &base.join("lock"),
            "another `cargo verify` runs; waiting for it",
        )?;
        let clone = nested::root();
        let folder = base.join("source");
        let names = mirror::update(&clone, &folder)?;
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(target) => std::path::absolute(target)?,
            None => cache::folder("target")?,
        };
        Ok(Self {
            files: read(&folder, names)?,
            clone,
            folder,
            target,
            _lock: lock,
        })
    }

    /// Environment of all child processes, so that they work in the copy.
    pub(super) fn environment(&self) -> Result<Vec<(&'static str, PathBuf)>> {
        let mut git = crate::process::program("git")?;
        git.current_dir(&self.clone)
            .args(["rev-parse", "--absolute-git-dir"]);
        let git = crate::process::output(&mut git)?;
        Ok(vec![
            (nested::ROOT, self.folder.clone()),
            ("CARGO_TARGET_DIR", self.target.clone()),
            ("GIT_DIR", PathBuf::from(git.trim())),
            ("GIT_WORK_TREE", self.folder.clone()),
        ])
    }
}

pub(super) fn read(folder: &Path, names: impl IntoIterator<Item = PathBuf>) -> Result<Files> {
    let file = |name: PathBuf| {
        let path = folder.join(&name);
        let content =
            std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let file = File::new(&name, &content);
        Ok((name, file))
    };
    names.into_iter().map(file).collect()
}
