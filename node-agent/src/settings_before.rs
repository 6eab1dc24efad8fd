//! Kernel settings as they were before `init` or the agent wrote them, so that `cleanup` can restore them, and so that
//! the agent can tell reserved ports of others from its own (S-242).
//!
//! Touches: one file, and `boot_id` of the kernel.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use portolan_reconcile::{Ports, RESERVED_PORTS};
use serde::{Deserialize, Serialize};

/// Another one after each boot, when all settings have new values.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
const FILE: &str = "settings-before.json";

/// A setting that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Its value before it was written for the first time.
    pub before: String,
    /// The last written value. A cleanup does not change a setting that has another value by then, except for reserved
    /// ports, of which it removes the agent's.
    pub written: String,
    /// The boot of the machine in which it was written.
    boot: String,
}

impl Written {
    /// The ports of a list that others than the agent reserved.
    fn ports_of_others(&self, found: &Ports) -> Ports {
        let (before, written) = (Ports::parse(&self.before), Ports::parse(&self.written));
        found.common(&before).and(&found.without(&written))
    }
}

/// The file with all written settings.
#[derive(Debug)]
pub struct SettingsBefore {
    path: PathBuf,
    boot: String,
    settings: BTreeMap<String, Written>,
}

impl SettingsBefore {
    /// An empty record, regardless of the contents of the directory.
    #[must_use]
    pub fn none(directory: &Path) -> Self {
        Self {
            path: directory.join(FILE),
            boot: std::fs::read_to_string(BOOT)
                .unwrap_or_default()
                .trim()
                .to_owned(),
            settings: BTreeMap::new(),
        }
    }

    /// Reads the record in this directory; empty if there is none. What was written before the last boot is left out.
    ///
    /// # Errors
    /// If the file exists and cannot be read, or was not written by this program.
    pub fn read(directory: &Path) -> io::Result<Self> {
        let mut found = Self::none(directory);
        match std::fs::read(&found.path) {
            Ok(bytes) => {
                found.settings = serde_json::from_slice(&bytes)?;
                found
                    .settings
                    .retain(|_, setting| setting.boot == found.boot);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(found)
    }

    /// Records a written setting. The first previous value is kept; of reserved ports, those of others.
    pub fn note(&mut self, name: &str, before: &str, written: &str) {
        let before = match (name, self.settings.get(name)) {
            (RESERVED_PORTS, _) => self.ports_of_others(before).to_string(),
            (_, Some(known)) => known.before.clone(),
            (_, None) => before.to_owned(),
        };
        let setting = Written {
            before,
            written: written.to_owned(),
            boot: self.boot.clone(),
        };
        self.settings.insert(name.to_owned(), setting);
    }

    /// The reserved ports in a list that others than the agent added.
    #[must_use]
    pub fn ports_of_others(&self, found: &str) -> Ports {
        let found = Ports::parse(found);
        let written = self.settings.get(RESERVED_PORTS);
        written.map_or_else(|| found.clone(), |written| written.ports_of_others(&found))
    }

    /// The value with which a cleanup replaces the value found; `None` if it leaves that.
    #[must_use]
    pub fn restored(&self, name: &str, found: &str) -> Option<String> {
        let setting = self.settings.get(name)?;
        if name == RESERVED_PORTS {
            let others = self.ports_of_others(found);
            return (others != Ports::parse(found)).then(|| others.to_string());
        }
        // Another program may have changed the setting since.
        (found == setting.written).then(|| setting.before.clone())
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
        assert_eq!(settings.restored("a", "2").as_deref(), Some("0"));
        for (name, found) in [("a", "1"), ("b", "2")] {
            assert_eq!(settings.restored(name, found), None, "{name}={found}");
        }
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

    #[test]
    fn reserved_ports_of_others_are_told_from_those_of_the_agent() {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = SettingsBefore::none(folder.path());
        let others = |settings: &SettingsBefore, found| settings.ports_of_others(found).to_string();
        assert_eq!(others(&settings, "8080,30000"), "8080,30000");
        settings.note(RESERVED_PORTS, "8080,30000", "8080,30000-32767");
        assert_eq!(others(&settings, "8080,30000-32767"), "8080,30000", "S-242");
        // Another program adds and removes a port, and then the agent narrows its range.
        assert_eq!(others(&settings, "7,30000-32767"), "7,30000");
        settings.note(RESERVED_PORTS, "7,30000-32767", "7,30000-30100");
        assert_eq!(others(&settings, "7,30000-30100"), "7,30000");
        let restored = |found| settings.restored(RESERVED_PORTS, found);
        assert_eq!(restored("7,30000-30100").as_deref(), Some("7,30000"));
        assert_eq!(restored("7,9,30000-30100").as_deref(), Some("7,9,30000"));
        assert_eq!(restored("7"), None);
        settings.note(RESERVED_PORTS, "", "30000-30100");
        let restored = settings.restored(RESERVED_PORTS, "30000-30100");
        assert_eq!(restored.as_deref(), Some(""));
    }

    #[test]
    fn a_boot_ends_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = SettingsBefore::none(folder.path());
        settings.note("a", "0", "1");
        settings.write().unwrap();
        let text = std::fs::read_to_string(&settings.path).unwrap();
        let earlier = text.replace(&settings.boot, "another-boot");
        assert_ne!(text, earlier);
        std::fs::write(&settings.path, earlier).unwrap();
        assert!(
            SettingsBefore::read(folder.path())
                .unwrap()
                .all()
                .is_empty()
        );
    }
}
