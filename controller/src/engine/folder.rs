//! A folder of manifests that may change at any time.
//!
//! A scan waits until files are written completely. A file that cannot be read keeps its previous objects: a
//! half-written file or a typing mistake must not remove Services from nodes.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use portolan_planner::model::{Object, ObjectId};

use crate::manifests::{FileContents, Manifests, Problem, list_folder, read_file};

/// Time for which files must stay unchanged before they are read.
const SETTLE_INTERVAL: Duration = Duration::from_millis(15);
/// Maximum number of checks whether files are unchanged. After them, the files are read as they are.
const MAX_SETTLE_CHECKS: usize = 20;

/// A folder of manifests, or one file.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    files: BTreeMap<PathBuf, FileState>,
    /// Whether the folder was read once.
    seen: bool,
}

#[derive(Debug)]
struct FileState {
    fingerprint: Fingerprint,
    contents: FileContents,
}

/// Identifies a version of a file without reading its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fingerprint {
    inode: u64,
    length: u64,
    modified: SystemTime,
}

/// The content of the manifests.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) objects: BTreeMap<ObjectId, Arc<Object>>,
    pub(super) problems: Vec<Problem>,
    /// Some of the text, or the settings, could not be read, so it is unknown what is missing.
    pub(super) is_incomplete: bool,
}

impl Folder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            files: BTreeMap::new(),
            seen: false,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The current content of the manifests; `None` if nothing changed since the last scan.
    pub(super) fn scan(&mut self) -> io::Result<Option<Scan>> {
        let mut present = self.fingerprints()?;
        if self.seen && self.is_current(&present) {
            return Ok(None);
        }
        for _ in 0..MAX_SETTLE_CHECKS {
            std::thread::sleep(SETTLE_INTERVAL);
            let later = self.fingerprints()?;
            if later == present {
                break;
            }
            present = later;
        }
        self.files.retain(|path, _| present.contains_key(path));
        for (path, fingerprint) in present {
            let old = self.files.remove(&path);
            let state = match old {
                Some(old) if old.fingerprint == fingerprint => old,
                old => {
                    let mut contents = read_file(&path);
                    if let Some(old) = old {
                        keep_unreadable(&mut contents, old.contents);
                    }
                    FileState {
                        fingerprint,
                        contents,
                    }
                }
            };
            self.files.insert(path, state);
        }
        self.seen = true;
        Ok(Some(self.merged()))
    }

    fn is_current(&self, present: &BTreeMap<PathBuf, Fingerprint>) -> bool {
        let held = self
            .files
            .iter()
            .map(|(path, state)| (path, &state.fingerprint));
        held.eq(present.iter())
    }

    fn fingerprints(&self) -> io::Result<BTreeMap<PathBuf, Fingerprint>> {
        let files = if std::fs::metadata(&self.path)?.is_dir() {
            list_folder(&self.path)?
        } else {
            vec![self.path.clone()]
        };
        let mut present = BTreeMap::new();
        for path in files {
            match std::fs::metadata(&path) {
                Ok(meta) => {
                    let (inode, length, modified) = (meta.ino(), meta.len(), meta.modified()?);
                    present.insert(
                        path,
                        Fingerprint {
                            inode,
                            length,
                            modified,
                        },
                    );
                }
                // The file was deleted after the directory was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(present)
    }

    fn merged(&self) -> Scan {
        let mut manifests = Manifests::default();
        for state in self.files.values() {
            manifests.add(state.contents.clone());
        }
        Scan {
            objects: manifests.objects,
            problems: manifests.problems,
            is_incomplete: self.files.values().any(|state| {
                let left_out = &state.contents.left_out;
                let settings = |id: &ObjectId| matches!(id, ObjectId::ProxyConfig(_));
                state.contents.is_incomplete() || left_out.iter().any(settings)
            }),
        }
    }
}

/// Restores the previous objects that could not be read: all missing objects if text could not be read, otherwise the
/// objects that were left out.
fn keep_unreadable(new: &mut FileContents, old: FileContents) {
    let incomplete = new.is_incomplete();
    let present: Vec<_> = new.objects.iter().map(|(_, found)| found.id()).collect();
    for (place, found) in old.objects {
        let id = found.id();
        if !present.contains(&id) && (incomplete || new.left_out.contains(&id)) {
            new.objects.push((place, found));
        }
    }
}
