//! Which rows were seen to be killed, with the file as it is: a list in the lab's cache.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::scratch::Scratch;
use super::table::Row;

/// Keys of rows.
pub(super) struct Killed {
    path: PathBuf,
    keys: BTreeSet<String>,
}

impl Killed {
    /// The list in a folder; an empty one if there is none.
    pub(super) fn read(folder: &Path) -> Self {
        let path = folder.join("killed");
        let text = fs::read_to_string(&path).unwrap_or_default();
        Self {
            path,
            keys: text.lines().map(str::to_owned).collect(),
        }
    }

    /// Whether a row is in the list, as it is and with its file as it is.
    pub(super) fn has(&self, row: &Row, scratch: &Scratch) -> bool {
        let file = scratch.read(&row.path());
        file.is_ok_and(|file| self.keys.contains(&key(row, &file)))
    }

    /// Adds a row.
    ///
    /// # Errors
    /// The cache cannot be written.
    pub(super) fn add(&mut self, row: &Row, scratch: &Scratch) -> Result<()> {
        self.keys.insert(key(row, &scratch.read(&row.path())?));
        let text: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        let writing = || format!("writing {}", self.path.display());
        fs::write(&self.path, text.join("\n")).with_context(writing)
    }
}

fn key(row: &Row, file: &str) -> String {
    let mut hasher = DefaultHasher::new();
    (&row.find, &row.replace, &row.fails, file).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
