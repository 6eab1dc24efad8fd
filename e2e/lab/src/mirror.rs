//! A copy of the clone's sources in the lab's cache, kept from run to run.
//!
//! Unchanged files keep their times, so that cargo compiles only what differs, even for a new clone in another
//! folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process;

/// Makes `to` equal to the clone `from`: files tracked by git, and new files that are not ignored. Returns the names
/// of all files.
///
/// # Errors
/// `from` is not a git clone, or `to` cannot be written.
pub(crate) fn update(from: &Path, to: &Path) -> Result<BTreeSet<PathBuf>> {
    let files = files(from)?;
    fs::create_dir_all(to).with_context(|| format!("creating {}", to.display()))?;
    copy(from, to, &files)?;
    Ok(files)
}

/// The files of the clone, relative to it.
pub(crate) fn files(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut command = process::program("git")?;
    let which = "--cached --others --exclude-standard".split(' ');
    command
        .current_dir(root)
        .args(["ls-files", "-z"])
        .args(which);
    let names = process::output(&mut command)?;
    let names = names.split_terminator('\0').map(PathBuf::from);
    // A file that was just removed is still in the index.
    Ok(names.filter(|name| root.join(name).is_file()).collect())
}

/// Makes `to` contain exactly these files.
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
        let mode = fs::metadata(&from).with_context(writing)?.permissions();
        fs::set_permissions(&to, mode).with_context(writing)?;
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
        let planner = Path::new("controller/planner");
        assert!(files.contains(&planner.join("Cargo.toml")));
        assert!(files.contains(Path::new("Cargo.lock")));
        assert!(!files.iter().any(|file| file.starts_with("target")));
    }
}
