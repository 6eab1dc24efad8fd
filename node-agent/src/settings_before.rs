//! Kernel settings as they were before `portolan-agent init` wrote them, so that `cleanup` can restore them.
//!
//! Touches: one file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const FILE: &str = "settings-before.json";

/// A setting that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Its value before it was written for the first time.
    pub before: String,
    /// The last written value. A cleanup does not change a setting that has another value by then.
    pub written: String,
}

/// The file with all written settings.
#[derive(Debug)]
pub struct SettingsBefore {
    path: PathBuf,
    settings: BTreeMap<String, Written>,
}

impl SettingsBefore {
    /// An empty record, regardless of the contents of the directory.
    #[must_use]
    pub fn none(directory: &Path) -> Self {
        Self {
            path: directory.join(FILE),
            settings: BTreeMap::new(),
        }
    }

    /// Reads the record in this directory; empty if there is none.
    ///
    /// # Errors
    /// If the file exists and cannot be read, or was not written by this program.
    pub fn read(directory: &Path) -> io::Result<Self> {
        let mut found = Self::none(directory);
        match std::fs::read(&found.path) {
            Ok(bytes) => found.settings = serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(found)
    }

    /// Records a written setting. The first previous value is kept.
    pub fn note(&mut self, name: &str, before: &str, written: &str) {
        let new = || Written {
            before: before.to_owned(),
            written: String::new(),
        };
        let entry = self.settings.entry(name.to_owned()).or_insert_with(new);
        written.clone_into(&mut entry.written);
    }

    /// All settings by name.
    #[must_use]
    pub fn all(&self) -> &BTreeMap<String, Written> {
        &self.settings
    }

    /// Writes the file atomically, if there is anything to write: the old file stays until the new one is complete.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self) -> io::Result<()> {
        if self.settings.is_empty() {
            return Ok(());
        }
        if let Some(directory) = self.path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let fresh = self.path.with_extension("new");
        std::fs::write(&fresh, serde_json::to_vec_pretty(&self.settings)?)?;
        std::fs::rename(&fresh, &self.path)
    }

    /// Removes the file.
    ///
    /// # Errors
    /// If the file exists and cannot be removed.
    pub fn remove(self) -> io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_previous_value_and_the_last_written_value_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = SettingsBefore::read(folder.path()).unwrap();
        settings.write().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        settings.note("a", "0", "1");
        settings.write().unwrap();
        let mut settings = SettingsBefore::read(folder.path()).unwrap();
        settings.note("a", "1", "2");
        let wanted = Written {
            before: "0".into(),
            written: "2".into(),
        };
        assert_eq!(settings.all().get("a"), Some(&wanted));
        settings.remove().unwrap();
        assert!(
            SettingsBefore::read(folder.path())
                .unwrap()
                .all()
                .is_empty()
        );
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        assert!(SettingsBefore::read(folder.path()).is_err());
        SettingsBefore::none(folder.path()).remove().unwrap();
        assert!(
            SettingsBefore::read(folder.path())
                .unwrap()
                .all()
                .is_empty()
        );
    }
}
