//! Results of units on this machine, valid until an input changes. Only passed units are stored.
//!
//! One file each: `TIER NAME KEY.json` in the lab's cache. A file under its final name is complete.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::batch::Unit;
use crate::cache;

/// Number of results kept per unit: branches and older states may be built again.
const KEPT: usize = 8;
/// The file with the units that failed in the last run.
const FAILED: &str = "failed";

/// The stored result of a passed unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Number of passed tests or checks.
    pub(super) passed: u64,
    /// Their names, for the behaviour table.
    pub(super) names: BTreeSet<String>,
    /// Duration, seconds.
    pub(super) seconds: f64,
    /// Processor time, seconds.
    pub(super) cpu: f64,
    /// End, Unix time in seconds.
    pub(super) at: u64,
}

impl Record {
    /// Its age.
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
    /// The folder in the lab's cache.
    ///
    /// # Errors
    /// The cache cannot be written.
    pub(super) fn open() -> Result<Self> {
        Ok(Self {
            folder: cache::folder("verify/results")?,
        })
    }

    /// The result of a unit with its key, if any. An unreadable one is ignored.
    pub(super) fn find(&self, unit: &Unit) -> Option<Record> {
        read(&self.path(unit))
    }

    /// The newest result of a unit, with any key.
    pub(super) fn newest(&self, unit: &Unit) -> Option<Record> {
        let (_, path) = self.of_unit(unit).ok()?.pop()?;
        read(&path)
    }

    /// Stores a result and removes the oldest ones of the same unit.
    ///
    /// # Errors
    /// The cache cannot be written.
    pub(super) fn keep(&self, unit: &Unit, record: &Record) -> Result<()> {
        let path = self.path(unit);
        let writing = || format!("writing {}", path.display());
        let draft = path.with_extension(format!("{}.draft", std::process::id()));
        fs::write(&draft, serde_json::to_vec(record)?).with_context(writing)?;
        fs::rename(&draft, &path).with_context(writing)?;
        let all = self.of_unit(unit)?;
        for (_, old) in &all[..all.len().saturating_sub(KEPT)] {
            fs::remove_file(old).with_context(|| format!("removing {}", old.display()))?;
        }
        Ok(())
    }

    /// Stores the names of the units that failed in this run.
    ///
    /// # Errors
    /// The cache cannot be written.
    pub(super) fn keep_failed(&self, failed: &[String]) -> Result<()> {
        let path = self.folder.join(FAILED);
        fs::write(&path, failed.join("\n")).with_context(|| format!("writing {}", path.display()))
    }

    /// The units that failed in the last run.
    pub(super) fn failed(&self) -> BTreeSet<String> {
        let text = fs::read_to_string(self.folder.join(FAILED)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn path(&self, unit: &Unit) -> PathBuf {
        self.folder
            .join(format!("{} {}.json", unit.title(), unit.key))
    }

    /// The results of a unit, the oldest first.
    fn of_unit(&self, unit: &Unit) -> Result<Vec<(SystemTime, PathBuf)>> {
        let start = format!("{} ", unit.title());
        let is_of_unit = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let key = name.strip_prefix(&start);
            let key = key.and_then(|rest| rest.strip_suffix(".json"));
            // The name of another unit may have the same prefix; keys contain no blanks.
            key.is_some_and(|key| !key.contains(' '))
        };
        let mut found = cache::by_age(&self.folder)?;
        found.retain(|(_, path)| is_of_unit(path));
        Ok(found)
    }
}

fn read(path: &Path) -> Option<Record> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiers::{Targets, Work};

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
        let unit = |tier, targets, key: &str| {
            Unit::new(tier, Work::Tests("portolan-e2e", targets), key.to_owned())
        };
        let plain = |key: &str| unit("unit", Targets::All, key);
        let pipeline = unit("unit", Targets::Named(&["pipeline"]), "k0");
        results.keep(&pipeline, &record(0)).unwrap();
        for at in 0..12 {
            results
                .keep(&plain(&format!("k{at}")), &record(at))
                .unwrap();
        }
        assert_eq!(results.find(&plain("k11")), Some(record(11)));
        assert_eq!(results.find(&plain("other")), None);
        assert_eq!(results.find(&unit("pure", Targets::All, "k11")), None);
        assert_eq!(results.of_unit(&plain("")).unwrap().len(), KEPT);
        assert!(results.find(&pipeline).is_some());
        fs::write(results.path(&plain("k11")), "{").unwrap();
        assert_eq!(results.find(&plain("k11")), None);
        assert!(results.failed().is_empty());
        results
            .keep_failed(&["guest/udp".to_owned(), "demo/demo".to_owned()])
            .unwrap();
        assert_eq!(
            results.failed(),
            ["demo/demo", "guest/udp"].map(str::to_owned).into()
        );
        fs::remove_dir_all(&results.folder).unwrap();
    }
}
