//! Files of installed Debian packages, for guests and images: those that this machine itself runs.
//!
//! Touches: `dpkg-query`, `ldd`. Writes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use crate::guest::{libraries, recipe};
use crate::process;

/// Files by the place that they get, in the merged tree.
#[derive(Debug, Default)]
pub struct Files {
    /// Place → path on this machine.
    pub files: BTreeMap<String, PathBuf>,
    /// Place → what the link says.
    pub links: BTreeMap<String, String>,
}

impl Files {
    /// What `wants` of these packages, given the place of each of their files.
    ///
    /// # Errors
    /// A package is not installed, or a link cannot be read.
    pub fn of_packages(packages: &[&str], wants: fn(&str) -> bool) -> Result<Self> {
        let mut found = Self::default();
        let mut list = process::program("dpkg-query")?;
        let paths = process::output(list.arg("-L").args(packages))?;
        for path in paths.lines() {
            let place = recipe::merged(path);
            if !wants(&place) {
                continue;
            }
            match fs::symlink_metadata(path) {
                Ok(data) if data.is_symlink() => {
                    let target = fs::read_link(path)?;
                    let target = recipe::merged(&target.to_string_lossy());
                    found.links.insert(place, target);
                }
                Ok(data) if data.is_file() => {
                    drop(found.files.insert(place, PathBuf::from(path)));
                }
                // Folders, and files that a slimmed system left out.
                _ => {}
            }
        }
        Ok(found)
    }

    /// Adds the shared libraries that its programs need, and returns them as the loader names them.
    ///
    /// # Errors
    /// One of them is missing on this machine.
    pub fn add_libraries(&mut self) -> Result<Vec<PathBuf>> {
        let programs: Vec<PathBuf> = self.files.values().cloned().collect();
        let mut added = Vec::new();
        for library in libraries::needed(&programs)? {
            let place = recipe::merged(&library.to_string_lossy());
            self.files.insert(place, library.clone());
            added.push(library);
        }
        Ok(added)
    }
}
