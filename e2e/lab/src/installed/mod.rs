//! Files of installed Debian packages, for guests and images: the versions that this machine itself runs.
//!
//! Touches: `dpkg-query`, `ldd`. Writes nothing.

pub mod libraries;
pub mod usr_merge;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use crate::process;

/// Files by their destination in the merged tree.
#[derive(Debug, Default)]
pub struct Files {
    /// Destination → path on this machine.
    pub files: BTreeMap<String, PathBuf>,
    /// Destination → target of the symlink.
    pub links: BTreeMap<String, String>,
}

impl Files {
    /// The files of these packages accepted by `wants`, which gets the destination of each.
    ///
    /// # Errors
    /// A package is not installed, or a link cannot be read.
    pub fn of_packages(packages: &[&str], wants: fn(&str) -> bool) -> Result<Self> {
        let mut found = Self::default();
        let mut list = process::program("dpkg-query")?;
        let paths = process::output(list.arg("-L").args(packages))?;
        for path in paths.lines() {
            let place = usr_merge::merged(path);
            if !wants(&place) {
                continue;
            }
            match fs::symlink_metadata(path) {
                Ok(data) if data.is_symlink() => {
                    let target = fs::read_link(path)?;
                    let target = usr_merge::merged(&target.to_string_lossy());
                    found.links.insert(place, target);
                }
                Ok(data) if data.is_file() => {
                    drop(found.files.insert(place, PathBuf::from(path)));
                }
                // Folders, and files excluded on a slimmed system.
                _ => {}
            }
        }
        Ok(found)
    }

    /// Adds the shared libraries of the programs, and returns their names for the loader.
    ///
    /// # Errors
    /// One of them is missing on this machine.
    pub fn add_libraries(&mut self) -> Result<Vec<PathBuf>> {
        let programs: Vec<PathBuf> = self.files.values().cloned().collect();
        let mut added = Vec::new();
        for library in libraries::needed(&programs)? {
            let place = usr_merge::merged(&library.to_string_lossy());
            self.files.insert(place, library.clone());
            added.push(library);
        }
        Ok(added)
    }
}
