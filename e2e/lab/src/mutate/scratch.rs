//! A copy of the clone's sources in the lab's cache, with its own target folder.
//!
//! Invariant: files that are as they were keep their times, so that only what differs is compiled.
//! One run at a time has it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::progress::say;
use crate::{cache, process};

/// The copy.
pub(super) struct Scratch {
    clone: PathBuf,
    target: PathBuf,
    /// Held until it is dropped.
    _lock: File,
}

impl Scratch {
    /// Makes it equal to the clone: what git tracks, and new files that it does not ignore.
    ///
    /// # Errors
    /// The folder is no clone of git, or the cache cannot be written.
    pub(super) fn prepare(root: &Path) -> Result<Self> {
        let folder = cache::folder("mutations")?;
        let lock = folder.join("lock");
        let waiting = || format!("locking {}", lock.display());
        let file = File::create(&lock).with_context(waiting)?;
        if file.try_lock().is_err() {
            say("another run of `cargo lab mutate` has the copy; waiting for it");
            file.lock().with_context(waiting)?;
        }
        let scratch = Self {
            clone: folder.join("clone"),
            target: folder.join("target"),
            _lock: file,
        };
        // A run that was cut off may have left half an increment behind.
        let increments = scratch.target.join("debug/incremental");
        if increments.exists() {
            fs::remove_dir_all(&increments)
                .with_context(|| format!("removing {}", increments.display()))?;
        }
        copy(root, &scratch.clone, &files(root)?)?;
        Ok(scratch)
    }

    /// The folder that stands for the clone.
    pub(super) fn clone_folder(&self) -> &Path {
        &self.clone
    }

    /// The target folder.
    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    /// A file of the copy.
    ///
    /// # Errors
    /// It is not there, or no text.
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

/// What the clone consists of, below it.
fn files(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut command = process::program("git")?;
    command.current_dir(root).args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let names = process::output(&mut command)?;
    let names = names.split_terminator('\0').map(PathBuf::from);
    // A file that was just removed is still in the index.
    Ok(names.filter(|name| root.join(name).is_file()).collect())
}

/// Makes `to` have these files and no others.
fn copy(from: &Path, to: &Path, files: &BTreeSet<PathBuf>) -> Result<()> {
    for name in files {
        let (from, to) = (from.join(name), to.join(name));
        let content = fs::read(&from).with_context(|| format!("reading {}", from.display()))?;
        if fs::read(&to).is_ok_and(|old| old == content) {
            continue;
        }
        let writing = || format!("writing {}", to.display());
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).with_context(writing)?;
        }
        fs::write(&to, content).with_context(writing)?;
    }
    remove_others(to, Path::new(""), files)
}

fn remove_others(root: &Path, below: &Path, files: &BTreeSet<PathBuf>) -> Result<()> {
    let folder = root.join(below);
    let reading = || format!("reading {}", folder.display());
    for entry in fs::read_dir(&folder).with_context(reading)? {
        let entry = entry.with_context(reading)?;
        let name = below.join(entry.file_name());
        let removing = || format!("removing {}", entry.path().display());
        if entry.file_type().with_context(reading)?.is_dir() {
            if files.iter().any(|file| file.starts_with(&name)) {
                remove_others(root, &name, files)?;
            } else {
                fs::remove_dir_all(entry.path()).with_context(removing)?;
            }
        } else if !files.contains(&name) {
            fs::remove_file(entry.path()).with_context(removing)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nested;

    fn names(names: &[&str]) -> BTreeSet<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn a_copy_follows_the_clone_and_what_is_equal_is_not_written_again() {
        let folder = std::env::temp_dir().join(format!("portolan-copy-{}", std::process::id()));
        let (from, to) = (folder.join("from"), folder.join("to"));
        for (name, text) in [("a/b/one.rs", "1"), ("a/two.rs", "2"), ("three.rs", "3")] {
            fs::create_dir_all(from.join(name).parent().unwrap()).unwrap();
            fs::write(from.join(name), text).unwrap();
        }
        let read = |name: &str| fs::read_to_string(to.join(name)).ok();
        copy(&from, &to, &names(&["a/b/one.rs", "a/two.rs", "three.rs"])).unwrap();
        assert_eq!(read("a/b/one.rs").as_deref(), Some("1"));
        let time = |name: &str| fs::metadata(to.join(name)).unwrap().modified().unwrap();
        let before = time("three.rs");
        fs::write(to.join("a/two.rs"), "broken").unwrap();
        copy(&from, &to, &names(&["a/two.rs", "three.rs"])).unwrap();
        assert_eq!(read("a/two.rs").as_deref(), Some("2"), "put right again");
        assert!(!to.join("a/b").exists(), "gone with its last file");
        assert_eq!(time("three.rs"), before);
        assert!(from.join("a/b/one.rs").exists(), "the clone is only read");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_clone_consists_of_what_git_knows() {
        let files = files(&nested::root()).unwrap();
        let planner = Path::new(super::super::FOLDER);
        assert!(files.contains(&planner.join("Cargo.toml")));
        assert!(files.contains(Path::new("Cargo.lock")));
        assert!(!files.iter().any(|file| file.starts_with("target")));
    }
}
