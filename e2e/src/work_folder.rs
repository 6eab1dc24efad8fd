//! The folder of one run: manifests, logs, state and the controller's socket.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A folder that goes when it is dropped.
#[derive(Debug)]
pub(crate) struct WorkFolder {
    pub(crate) path: PathBuf,
}

impl WorkFolder {
    pub(crate) fn make() -> Result<Self> {
        let name = format!("portolan-scenarios-{}", std::process::id());
        // Short, because the path of a Unix socket has room for 107 bytes.
        let path = [Path::new("/run"), &std::env::temp_dir()]
            .into_iter()
            .map(|parent| parent.join(&name))
            .find(|path| std::fs::create_dir(path).is_ok())
            .with_context(|| format!("make a folder {name} in /run or the temporary folder"))?;
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
