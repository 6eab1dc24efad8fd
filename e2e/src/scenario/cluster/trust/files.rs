//! The files of a controller, which are replaced while it runs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The files of one controller.
pub(super) struct Files {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl Files {
    /// Replaces both files, each atomically.
    pub(super) fn write(&self, certificate: &str, key: &str) -> Result<()> {
        replace(&self.certificate, certificate)?;
        replace(&self.key, key)
    }
}

/// Replaces a file atomically, as the kubelet does with mounted Secrets.
pub(super) fn replace(path: &Path, text: &str) -> Result<()> {
    let draft = path.with_extension("draft");
    std::fs::write(&draft, text).with_context(|| format!("write {}", draft.display()))?;
    std::fs::rename(&draft, path).with_context(|| format!("replace {}", path.display()))
}
