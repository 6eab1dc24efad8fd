//! A list in the lab's cache of the files and rows of the last runs, so that a short run applies only changed ones.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::scratch::Scratch;
use super::subject::Subject;
use super::table::Row;

/// Keys of killed rows, and of their files at that time.
pub(super) struct Known {
    path: PathBuf,
    keys: BTreeSet<String>,
}

impl Known {
    /// The list of a subject in a folder; empty if there is none.
    pub(super) fn read(folder: &Path, subject: Subject) -> Self {
        let path = folder.join(format!("known-{subject:?}").to_lowercase());
        let text = fs::read_to_string(&path).unwrap_or_default();
        Self {
            path,
            keys: text.lines().map(str::to_owned).collect(),
        }
    }

    /// Whether neither the row nor its file has changed. With an empty list, nothing has.
    pub(super) fn is_as_before(&self, row: &Row, scratch: &Scratch) -> bool {
        let keys = keys(row, scratch);
        self.keys.is_empty()
            || keys.is_ok_and(|keys| keys.iter().all(|key| self.keys.contains(key)))
    }

    /// Stores these rows, of which none survived.
    ///
    /// # Errors
    /// The cache cannot be written.
    pub(super) fn replace(&self, rows: &[Row], scratch: &Scratch) -> Result<()> {
        let keys = rows.iter().map(|row| keys(row, scratch));
        let keys = keys.collect::<Result<Vec<_>>>()?.concat();
        let writing = || format!("writing {}", self.path.display());
        fs::write(&self.path, keys.join("\n")).with_context(writing)
    }
}

/// The keys of the row and of its file.
fn keys(row: &Row, scratch: &Scratch) -> Result<[String; 2]> {
    let path = row.path();
    let file = scratch.read(path)?;
    let hash = |kind: &str, parts: [&str; 3]| {
        let mut hasher = DefaultHasher::new();
        parts.hash(&mut hasher);
        format!("{kind} {:016x}", hasher.finish())
    };
    Ok([
        hash("row", [&row.find, &row.replace, &row.fails]),
        hash("file", [&path.to_string_lossy(), &file, ""]),
    ])
}
