//! Results of units on this machine, kept until what they depend on changes. Only what passed is kept.
//!
//! A file for each: `TIER NAME KEY.json` in the lab's cache. A file under its final name is complete.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::cache;

/// How many results of one unit stay: branches and older states may come back.
const KEPT: usize = 8;

/// What is kept of a unit that passed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// How many tests or checks passed.
    pub(super) passed: u64,
    /// Their names, for the table of behaviours.
    pub(super) names: BTreeSet<String>,
    /// How long it took, seconds.
    pub(super) seconds: f64,
    /// Processor time, seconds.
    pub(super) cpu: f64,
    /// When it ended, seconds of Unix time.
    pub(super) at: u64,
}

impl Record {
    /// How long ago it ended.
    pub(super) fn age(&self) -> Duration {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(self.at);
        at.elapsed().unwrap_or_default()
    }
}

/// The folder of results.
#[derive(Debug)]
pub(super) struct Results {
    folder: PathBuf,
}

impl Results {
    /// That of the lab's cache.
    ///
    /// # Errors
    /// The cache cannot be written.
    pub(super) fn open() -> Result<Self> {
        Ok(Self {
            folder: cache::folder("verify/results")?,
        })
    }

    /// A result, if there is one of this key. One that cannot be read is none.
    pub(super) fn find(&self, tier: &str, unit: &str, key: &str) -> Option<Record> {
        let text = fs::read_to_string(self.path(tier, unit, key)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// The newest result of a unit, whatever its key.
    pub(super) fn newest(&self, tier: &str, unit: &str) -> Option<Record> {
        let (_, path) = self.of_unit(tier, unit).ok()?.pop()?;
        serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
    }

    /// Keeps a result and forgets the oldest of the same unit.
    ///
    /// # Errors
    /// The cache cannot be written.
    pub(super) fn keep(&self, tier: &str, unit: &str, key: &str, record: &Record) -> Result<()> {
        let path = self.path(tier, unit, key);
        let writing = || format!("writing {}", path.display());
        let draft = path.with_extension(format!("{}.draft", std::process::id()));
        fs::write(&draft, serde_json::to_vec(record)?).with_context(writing)?;
        fs::rename(&draft, &path).with_context(writing)?;
        let all = self.of_unit(tier, unit)?;
        for (_, old) in &all[..all.len().saturating_sub(KEPT)] {
            fs::remove_file(old).with_context(|| format!("removing {}", old.display()))?;
        }
        Ok(())
    }

    fn path(&self, tier: &str, unit: &str, key: &str) -> PathBuf {
        self.folder.join(format!("{tier} {unit} {key}.json"))
    }

    /// Results of a unit, the oldest first.
    fn of_unit(&self, tier: &str, unit: &str) -> Result<Vec<(SystemTime, PathBuf)>> {
        let start = format!("{tier} {unit} ");
        let reading = || format!("reading {}", self.folder.display());
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder).with_context(reading)? {
            let entry = entry.with_context(reading)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let key = name
                .strip_prefix(&start)
                .and_then(|rest| rest.strip_suffix(".json"));
            // A longer name of another unit begins the same way; keys have no blanks.
            if key.is_some_and(|key| !key.contains(' ')) {
                found.push((
                    entry.metadata().and_then(|data| data.modified())?,
                    entry.path(),
                ));
            }
        }
        found.sort();
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at: u64) -> Record {
        Record {
            passed: 3,
            names: BTreeSet::from(["portolan-plan::laws::a".to_owned()]),
            seconds: 1.5,
            cpu: 1.25,
            at,
        }
    }

    #[test]
    fn a_result_is_found_by_its_key_and_only_the_last_ones_of_a_unit_stay() {
        let folder = std::env::temp_dir().join(format!("portolan-results-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let results = Results { folder };
        results
            .keep("unit", "portolan-e2e pipeline", "k0", &record(0))
            .unwrap();
        for at in 0..12 {
            results
                .keep("unit", "portolan-e2e", &format!("k{at}"), &record(at))
                .unwrap();
        }
        assert_eq!(
            results.find("unit", "portolan-e2e", "k11"),
            Some(record(11))
        );
        assert_eq!(results.find("unit", "portolan-e2e", "other"), None);
        assert_eq!(results.find("pure", "portolan-e2e", "k11"), None);
        assert_eq!(results.of_unit("unit", "portolan-e2e").unwrap().len(), KEPT);
        assert!(
            results
                .find("unit", "portolan-e2e pipeline", "k0")
                .is_some()
        );
        fs::write(results.path("unit", "portolan-e2e", "k11"), "{").unwrap();
        assert_eq!(results.find("unit", "portolan-e2e", "k11"), None);
        fs::remove_dir_all(&results.folder).unwrap();
    }
}
